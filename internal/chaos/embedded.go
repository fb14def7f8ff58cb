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

	"github.com/weir-log/weir/internal/judge"
)

// order is what an embedded log's program is told to do: one line of JSON on its standard input.
type order struct {
	ID      int
	Do      string
	Topic   string
	Key     string // an idempotency key, or that of a message
	Values  []string
	N       int    // partitions; or a message's priority; or a stream's version
	ID16    []byte // a topic's id
	Undone  bool   // roll the transaction back
	Old     bool   // the events have old timestamps
	Group   string
	Name    string // of a consumer, a worker, a stream or a projection; or a message's unique key
	Topics  []string
	Mode    string        // of a consumer: single, batch or tx
	Session time.Duration // of a member; or a worker's lease; or a message's delay
	Config  map[string]string
	Once    bool // project in transactions
	Subject string
	Tag     string // of the events
	Within  string // the boundary of an append
}

// embedded is a program with an embedded log: this program itself, as a child.
type embedded struct {
	process
	listen func(judge.Word) // hears what nobody asked for

	waiting sync.Mutex // guards what follows
	stdin   io.WriteCloser
	next    int
	asked   map[int]chan judge.Word
}

// embeddedJob is the argument that makes this program an embedded log's.
const embeddedJob = "embedded-log"

var errGone = errors.New("the process ended before it answered")

func newEmbedded(w *world, name string) (*embedded, error) {
	e := &embedded{asked: map[int]chan judge.Word{}}
	e.process = process{
		name: name, w: w,
		command: func() *exec.Cmd { return exec.Command(os.Args[0], embeddedJob, e.url) },
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
			if said.Outcome != judge.Done {
				return errors.New(said.Err)
			}
			return nil
		},
	}
	return e, w.connect(&e.process)
}

// connect reads what a new process says until it ends. Then everything that was asked of it has an
// unknown outcome.
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
	mine := map[int]chan judge.Word{} // not that of the process before, whose end may be seen later than this start
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
			var said judge.Word
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
			ch <- judge.Word{Outcome: judge.Unknown, Err: errGone.Error()}
		}
		clear(mine)
		if e.stdin == in {
			e.stdin, e.asked = nil, map[int]chan judge.Word{}
		}
		e.waiting.Unlock()
	}()
	return func() { stdout.Close() }, nil
}

// ask gives an order and waits for the answer. Nobody waits for ever: a process that ends answers
// "unknown".
func (e *embedded) ask(ctx context.Context, o order) judge.Word {
	e.waiting.Lock()
	if e.stdin == nil {
		e.waiting.Unlock()
		pause(ctx, 100*time.Millisecond)
		return judge.Word{Outcome: judge.Refused, Err: "the process does not run"}
	}
	e.next++
	o.ID = e.next
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	ch := make(chan judge.Word, 1)
	e.asked[o.ID] = ch
	_, err = e.stdin.Write(append(line, '\n')) // short lines: a stopped process's pipe holds thousands
	e.waiting.Unlock()
	if err != nil {
		return judge.Word{Outcome: judge.Unknown, Err: err.Error()}
	}
	select {
	case said := <-ch:
		return said
	case <-ctx.Done():
		return judge.Word{Outcome: judge.Unknown, Err: ctx.Err().Error()}
	case <-time.After(2 * clientPatience):
		return judge.Word{Outcome: judge.Unknown, Err: fmt.Sprintf("no answer to %s within %v", o.Do, 2*clientPatience)}
	}
}
