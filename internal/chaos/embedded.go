package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// order is what an embedded log's program is told to do: one line of JSON on its standard input.
type order struct {
	ID      int
	Do      string
	Topic   string
	Key     string // an idempotency key
	Values  []string
	N       int    // partitions
	ID16    []byte // a topic's id
	Undone  bool   // roll the transaction back
	Old     bool   // the events have old timestamps
	Group   string
	Name    string // of a consumer
	Topics  []string
	Mode    string // of a consumer: single, batch or tx
	Session time.Duration
	Config  map[string]string
	Once    bool // project in transactions
	Subject string
	Tag     string // of the events
	Within  string // the boundary of an append
}

// word is what it answers: one line of JSON on its standard output.
type word struct {
	ID       int // of the order; 0: nobody asked
	Outcome  outcome
	Err      string
	Places   []place
	Members  int
	State    string
	Consumer string // whose handler this is about
	Group    string
	Handled  []sight
	Once     bool // in a transaction that committed their offset
	Job      *job
	// Projection: a projection's handler got Handled, in the run State.
	Projection bool
	// Version of a stream after an append, or that a conflict told; then Exists says whether there is such a stream.
	Version int64
	Exists  bool
}

// job is a message that a Go worker has, and then what it is about to answer: ack, nack or reject.
type job struct {
	Queue, ID, Value string
	Attempt          int
	Answer           string
	Receipt          string
	InTx             bool // it acknowledges in its transaction: the word's outcome is pending before that
}

// embedded is a program with an embedded log: this program itself, as a child.
type embedded struct {
	process
	listen func(word) // hears what nobody asked for

	waiting sync.Mutex // guards what follows
	stdin   io.WriteCloser
	next    int
	asked   map[int]chan word
}

// embeddedJob is the argument that makes this program an embedded log's.
const embeddedJob = "embedded-log"

var errGone = errors.New("the process ended before it answered")

func newEmbedded(w *world, name string) *embedded {
	e := &embedded{asked: map[int]chan word{}}
	e.process = process{
		name: name, w: w,
		command: func() *exec.Cmd { return exec.Command(os.Args[0], embeddedJob, w.url) },
		prepare: func(cmd *exec.Cmd) (func(), error) {
			closeLog, err := w.saysTo(cmd, name)
			if err != nil {
				return nil, err
			}
			closePipe, err := e.connect(cmd)
			return func() { closeLog(); closePipe() }, err
		},
		ready: func(ctx context.Context) error {
			said := e.ask(ctx, order{Do: "ready"})
			if said.Outcome != done {
				return errors.New(said.Err)
			}
			return nil
		},
	}
	return e
}

// connect reads what a new process says until it ends. Then everything that was asked of it has an unknown outcome.
func (e *embedded) connect(cmd *exec.Cmd) (after func(), err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, stdout, err := os.Pipe() // our own: Wait would close that of StdoutPipe, with lines in it
	if err != nil {
		return nil, err
	}
	cmd.Stdout = stdout
	mine := map[int]chan word{} // not that of the process before, whose end may be seen later than this start
	e.waiting.Lock()
	e.stdin, e.asked = in, mine
	e.waiting.Unlock()
	go func() {
		defer out.Close()
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var said word
			if json.Unmarshal(line, &said) != nil {
				continue // the last line of a process that was killed, or somebody's print
			}
			if said.ID == 0 {
				if e.listen != nil {
					e.listen(said)
				}
				continue
			}
			e.waiting.Lock()
			ch := mine[said.ID]
			delete(mine, said.ID)
			e.waiting.Unlock()
			if ch != nil {
				ch <- said
			}
		}
		e.waiting.Lock()
		for _, ch := range mine {
			ch <- word{Outcome: unknown, Err: errGone.Error()}
		}
		clear(mine)
		if e.stdin == in {
			e.stdin, e.asked = nil, map[int]chan word{}
		}
		e.waiting.Unlock()
	}()
	return func() { stdout.Close() }, nil
}

// ask gives an order and waits for the answer. Nobody waits for ever: a process that ends answers "unknown".
func (e *embedded) ask(ctx context.Context, o order) word {
	e.waiting.Lock()
	if e.stdin == nil {
		e.waiting.Unlock()
		pause(ctx, 100*time.Millisecond)
		return word{Outcome: refused, Err: "the process does not run"}
	}
	e.next++
	o.ID = e.next
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	ch := make(chan word, 1)
	e.asked[o.ID] = ch
	_, err = e.stdin.Write(append(line, '\n')) // short lines: a stopped process's pipe holds thousands
	e.waiting.Unlock()
	if err != nil {
		return word{Outcome: unknown, Err: err.Error()}
	}
	select {
	case said := <-ch:
		return said
	case <-ctx.Done():
		return word{Outcome: unknown, Err: ctx.Err().Error()}
	case <-time.After(2 * clientPatience):
		return word{Outcome: unknown, Err: fmt.Sprintf("no answer to %s within %v", o.Do, 2*clientPatience)}
	}
}
