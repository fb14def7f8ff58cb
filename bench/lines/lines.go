// Package lines is the benchmark's end of the protocol that adapters speak: JSON lines on the
// standard input and output of a program. docs/bench-adapter.md describes it.
package lines

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Request is what is asked of an adapter: an op, and its fields. The pipe adds the id.
type Request map[string]any

// Answer is a line of an adapter.
type Answer struct {
	ID       int64    `json:"id"`
	OK       int      `json:"ok"`
	Err      string   `json:"err"`
	Conflict *int64   `json:"conflict"` // of an append: the version that the stream is at
	Refused  int      `json:"refused"`  // 1: what failed has certainly done nothing
	Got      []byte   `json:"got"`
	Acked    []byte   `json:"acked"`
	Stream   string   `json:"stream"` // of what a follower got
	Version  int64    `json:"version"`
	Versions []int64  `json:"versions"`
	Values   [][]byte `json:"values"`
	Left     *int64   `json:"left"`

	Hello

	line []byte // as it came
}

// Failure says why an answer is not what was asked for.
func (a Answer) Failure() string {
	switch {
	case a.Err != "":
		return a.Err
	case a.OK != 0:
		return "it was answered with ok"
	}
	return "the answer has neither ok nor err: " + shown(a.line)
}

// shownMost bounds what a message has of a line.
const shownMost = 500

// shown is a line in a message.
func shown(line []byte) string {
	line = bytes.TrimSpace(line)
	if len(line) > shownMost {
		return string(line[:shownMost]) + "…"
	}
	return string(line)
}

// Hello is what an adapter says of itself.
type Hello struct {
	Name     string            `json:"name"`
	Can      []string          `json:"can"`   // some of Kinds
	Order    string            `json:"order"` // of a log: OrderKey, or none
	Settings map[string]string `json:"settings"`

	Elsewhere int `json:"elsewhere"` // 1: the adapter did not start the system
}

// What an adapter can do.
const (
	Log     = "log"
	Queue   = "queue"
	Streams = "streams"
	Follow  = "follow" // streams, all together
)

// Kinds are all of them.
var Kinds = []string{Log, Queue, Streams, Follow}

// OrderKey: the events of a key are delivered in the order in which they were published.
const OrderKey = "key"

// ErrEnded: the adapter's process has ended.
var ErrEnded = errors.New("the adapter ended")

// Pipe is a conversation with an adapter. Its methods may be called concurrently.
type Pipe struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.Closer
	ended chan struct{}

	writes sync.Mutex // guards in; who writes waits for an adapter that waits to be heard, so it has not mu
	mu     sync.Mutex // guards all below
	next   int64
	asked  map[int64]chan Answer
	hears  map[int64]func(Answer) // requests that are told more than once
	strays []Answer               // to requests that were answered before, or that nobody made
	failed error                  // it has ended
}

// straysMost is how many strays are kept: the first ones say enough.
const straysMost = 100

// Start starts an adapter. What it says on standard error is shown. It ends with this process.
func Start(cmd *exec.Cmd) (*Pipe, error) {
	p := &Pipe{cmd: cmd, ended: make(chan struct{}), asked: map[int64]chan Answer{}, hears: map[int64]func(Answer){}}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // what it starts is killed with it
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the adapter: %w", err)
	}
	go p.listen(out)
	return p, nil
}

// listen hands on what the adapter says, until it ends. A line that is none of the protocol's is
// ignored: clients print some.
func (p *Pipe) listen(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var a Answer
		wrong := json.Unmarshal(line, &a)
		if a.ID == 0 {
			continue
		}
		if wrong != nil { // to be silent about it would let its request wait until it is given up
			a = Answer{ID: a.ID, Err: fmt.Sprintf("a line cannot be read: %v: %s", wrong, shown(line))}
		}
		a.line = line
		p.heard(a)
	}
	_ = p.cmd.Wait() // how it ended is nobody's business: that it did is told
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = ErrEnded
	for _, asked := range p.asked {
		close(asked)
	}
	clear(p.asked)
	close(p.ended)
}

func (p *Pipe) heard(a Answer) {
	p.mu.Lock()
	hear, asked := p.hears[a.ID], p.asked[a.ID]
	delivery := a.Got != nil || a.Acked != nil
	switch {
	case delivery && hear != nil:
	case !delivery && asked != nil:
		delete(p.asked, a.ID)
		asked <- a // it has room for one
	case len(p.strays) < straysMost:
		p.strays = append(p.strays, a)
	}
	p.mu.Unlock()
	if delivery && hear != nil {
		hear(a)
	}
}

// Strays are answers to requests that were answered before, or that nobody made: the first hundred.
func (p *Pipe) Strays() []Answer { p.mu.Lock(); defer p.mu.Unlock(); return slices.Clone(p.strays) }

// Pending is a request that was sent.
type Pending struct {
	ID     int64
	pipe   *Pipe
	answer chan Answer
}

// Send sends a request. hear gets what is delivered to it, in the order in which it came; nil:
// there is nothing.
func (p *Pipe) Send(r Request, hear func(Answer)) (*Pending, error) {
	w, err := p.pending(hear)
	if err != nil {
		return nil, err
	}
	r = maps.Clone(r)
	r["id"] = w.ID
	line, err := json.Marshal(r)
	if err != nil {
		w.forget()
		return nil, err
	}
	p.writes.Lock()
	defer p.writes.Unlock()
	if _, err = p.in.Write(append(line, '\n')); err != nil {
		w.forget()
		return nil, errors.Join(ErrEnded, err)
	}
	return w, nil
}

// pending is a request that is about to be sent.
func (p *Pipe) pending(hear func(Answer)) (*Pending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return nil, p.failed
	}
	p.next++
	w := &Pending{ID: p.next, pipe: p, answer: make(chan Answer, 1)}
	p.asked[w.ID] = w.answer
	if hear != nil {
		p.hears[w.ID] = hear
	}
	return w, nil
}

// Answer waits for the answer. ErrEnded: the adapter ended before.
func (w *Pending) Answer(ctx context.Context) (Answer, error) {
	defer w.forget()
	select {
	case a, open := <-w.answer:
		if !open {
			return a, ErrEnded
		}
		return a, nil
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

func (w *Pending) forget() {
	w.pipe.mu.Lock()
	defer w.pipe.mu.Unlock()
	delete(w.pipe.asked, w.ID)
	delete(w.pipe.hears, w.ID)
}

// Ask sends a request, and waits for its answer.
func (p *Pipe) Ask(ctx context.Context, r Request) (Answer, error) {
	w, err := p.Send(r, nil)
	if err != nil {
		return Answer{}, err
	}
	return w.Answer(ctx)
}

// Listen sends a request that is told more than once, until ctx ends; then it stops it. After it
// has returned nothing more is heard.
func (p *Pipe) Listen(ctx context.Context, r Request, hear func(Answer)) error {
	w, err := p.Send(r, hear)
	if err != nil {
		return err
	}
	defer w.forget()
	select {
	case a, open := <-w.answer:
		if !open {
			return ErrEnded
		}
		return fmt.Errorf("the adapter stopped %v by itself: %s", r["op"], a.Failure())
	case <-ctx.Done():
	}
	stopping, stopped := context.WithTimeout(context.WithoutCancel(ctx), EndWait)
	defer stopped()
	if a, err := p.Ask(stopping, Request{"op": "stop", "of": w.ID}); err != nil || a.OK == 0 {
		return fmt.Errorf("stop %v: %w", r["op"], cmp.Or(err, errors.New(a.Failure())))
	}
	if a, err := w.Answer(stopping); err != nil || a.OK == 0 {
		return fmt.Errorf("%v was stopped, and its last answer did not come, or is not ok: %w", r["op"], cmp.Or(err, errors.New(a.Failure())))
	}
	return nil
}

// EndWait bounds how long an adapter may take to stop.
const EndWait = 10 * time.Second

// Close ends the adapter: it ends when its standard input does. It fails if it takes too long, and
// kills it.
func (p *Pipe) Close() error {
	_ = p.in.Close() // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(EndWait):
		p.Kill()
		return fmt.Errorf("the adapter, or a server that it started and that has its standard output, did not end within %v when its standard input had ended", EndWait)
	}
}

// Kill ends the adapter, and what it started, without a warning.
func (p *Pipe) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = p.out.Close()                                     // who left its group may hold the other end
	<-p.ended
}
