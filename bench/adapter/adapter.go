// Package adapter checks an adapter that somebody wrote: whether it speaks the protocol, and
// whether the system behind it keeps what the benchmark measures it by.
package adapter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/bench/lines"
	"github.com/weir-log/weir/bench/system"
)

// Check is one promise of an adapter.
type Check struct {
	Name     string
	Promises string // in words
	Of       string // what an adapter must say that it can; "": every adapter
	run      func(ctx context.Context, s *session) error
}

// All are the checks, in the order in which they are made.
func All() []Check { return slices.Concat(ofAll, ofLogs, ofQueues, ofStreams) }

// Options are how an adapter is checked.
type Options struct {
	Command []string
	Dir     string   // for the adapter's files
	Only    []string // names of checks; none: all
}

// Result is what came of the checks.
type Result struct {
	Held, Failed []string
	Apart        []string // were not made: they are about what the adapter does not say that it can
}

// checkWait bounds a check.
const checkWait = 60 * time.Second

// Run makes the checks, each with an adapter of its own, and tells of each on out.
func Run(ctx context.Context, o Options, out io.Writer) (r Result, err error) {
	all := All()
	for _, name := range o.Only {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.Name == name }) {
			return r, fmt.Errorf("there is no check %q; `weir-bench adapter checks` lists them", name)
		}
	}
	can, err := o.greet(ctx)
	if err != nil {
		fmt.Fprintf(out, "%-18s FAILED: %v\n", ofAll[0].Name, err)
		r.Failed = []string{ofAll[0].Name}
		return r, ctx.Err()
	}
	for _, c := range all {
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.Name) {
			continue
		}
		if c.Of != "" && !slices.Contains(can, c.Of) {
			r.Apart = append(r.Apart, c.Name)
			continue
		}
		if err := o.check(ctx, c); err != nil {
			r.Failed = append(r.Failed, c.Name)
			fmt.Fprintf(out, "%-18s FAILED: %s: %v\n", c.Name, c.Promises, err)
		} else {
			r.Held = append(r.Held, c.Name)
			fmt.Fprintf(out, "%-18s ok\n", c.Name)
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	return r, nil
}

// greet asks an adapter what it can.
func (o Options) greet(ctx context.Context) (can []string, err error) {
	s, err := o.start(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	s.pipe.Kill()
	return s.hello.Can, nil
}

// check makes one check.
func (o Options) check(ctx context.Context, c Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	dir, err := os.MkdirTemp(o.Dir, c.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := o.start(ctx, dir)
	if err != nil {
		return err
	}
	err = c.run(ctx, s)
	if err == nil {
		if strays := s.pipe.Strays(); len(strays) > 0 {
			err = fmt.Errorf("a line came that belongs to no request that waits: id %d", strays[0].ID)
		}
	}
	s.pipe.Kill()
	return err
}

// session is one check's conversation with an adapter.
type session struct {
	options Options
	dir     string
	pipe    *lines.Pipe
	hello   lines.Hello
	prefix  string // of names: nothing else has it
}

func (o Options) start(ctx context.Context, dir string) (*session, error) {
	pipe, err := lines.Start(exec.Command(o.Command[0], o.Command[1:]...))
	if err != nil {
		return nil, err
	}
	s := &session{options: o, dir: dir, pipe: pipe, prefix: strings.ToLower(rand.Text()[:8]) + "-"}
	if s.hello, err = system.Greet(ctx, pipe, dir, system.Durable); err != nil {
		pipe.Kill()
		return nil, err
	}
	return s, nil
}

// again kills the adapter, and starts it anew.
func (s *session) again(ctx context.Context) error {
	s.pipe.Kill()
	next, err := s.options.start(ctx, s.dir)
	if err != nil {
		return fmt.Errorf("after kill -9: %w", err)
	}
	s.pipe = next.pipe
	return nil
}

// answerWait bounds how long an answer may take.
const answerWait = 20 * time.Second

// ask makes a request that must succeed.
func (s *session) ask(ctx context.Context, r lines.Request) (lines.Answer, error) {
	a, err := s.answer(ctx, r)
	switch {
	case err != nil:
		return a, err
	case a.Conflict != nil:
		return a, fmt.Errorf("%v was refused: the stream is at version %d", r["op"], *a.Conflict)
	case a.OK == 0:
		return a, fmt.Errorf("%v failed: %s", r["op"], firstLine(a.Failure()))
	}
	return a, nil
}

// answer makes a request, whatever becomes of it.
func (s *session) answer(ctx context.Context, r lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	a, err := s.pipe.Ask(ctx, r)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", answerWait)
	}
	if err != nil {
		return a, fmt.Errorf("%v: %w", r["op"], err)
	}
	return a, nil
}

func firstLine(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }

// delivery is a value that an adapter told of.
type delivery struct {
	acked bool
	value string
}

// listening is a request that is told more than once.
type listening struct {
	stop func() error

	mu  sync.Mutex // guards all
	all []delivery
}

// listen starts a request that is told more than once. stop stops it.
func (s *session) listen(ctx context.Context, r lines.Request) *listening {
	l := &listening{}
	listens, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- s.pipe.Listen(listens, r, func(a lines.Answer) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if a.Got != nil {
				l.all = append(l.all, delivery{value: string(a.Got)})
			}
			if a.Acked != nil {
				l.all = append(l.all, delivery{acked: true, value: string(a.Acked)})
			}
		})
	}()
	l.stop = sync.OnceValue(func() error {
		end()
		return <-ended
	})
	return l
}

// values are those that were got, or acknowledged.
func (l *listening) values(acked bool) (values []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.all {
		if d.acked == acked {
			values = append(values, d.value)
		}
	}
	return values
}

// got waits until so many different values were got, and then for what comes again.
func (l *listening) got(ctx context.Context, n int) ([]string, error) {
	return l.wait(ctx, n, false)
}

// silence is how long a check waits for what must not come.
const silence = 200 * time.Millisecond

// comesWait bounds how long a check waits for what must come.
const comesWait = 15 * time.Second

func (l *listening) wait(ctx context.Context, n int, acked bool) ([]string, error) {
	for until := time.Now().Add(comesWait); distinct(l.values(acked)) < n; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) || ctx.Err() != nil {
			return l.values(acked), fmt.Errorf("%d of %d came within %v", distinct(l.values(acked)), n, comesWait)
		}
	}
	time.Sleep(silence)
	return l.values(acked), nil
}

func distinct(values []string) int {
	values = slices.Clone(values)
	slices.Sort(values)
	return len(slices.Compact(values))
}

// same compares what came with what was sent, in any order.
func same(came, sent []string) error {
	missing := map[string]int{}
	for _, v := range sent {
		missing[v]++
	}
	for _, v := range came {
		if missing[v]--; missing[v] < 0 {
			if slices.Contains(sent, v) {
				return fmt.Errorf("%s came again", short(v))
			}
			return fmt.Errorf("%s came, which was not sent there", short(v))
		}
	}
	for v, n := range missing {
		if n > 0 {
			return fmt.Errorf("%s did not come", short(v))
		}
	}
	return nil
}

// short is a value as a message shows it.
func short(v string) string {
	if len(v) > 40 {
		return fmt.Sprintf("a value of %d bytes that begins with %q", len(v), v[:16])
	}
	return fmt.Sprintf("%q", v)
}

// inOrder says which value of a key came too late. Values are KEY/NUMBER.
func inOrder(values []string) error {
	last := map[string]int{}
	for _, v := range values {
		key, number, _ := strings.Cut(v, "/")
		var n int
		if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
			return fmt.Errorf("%s came, which was not sent", short(v))
		}
		if before, has := last[key]; has && n < before {
			return fmt.Errorf("%s came after %s/%d", short(v), key, before)
		}
		last[key] = n
	}
	return nil
}
