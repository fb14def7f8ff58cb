package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/lines"
	"github.com/weir-log/weir/bench/system"
)

var createStreams = lines.Request{"op": "create", "kind": lines.Streams}

// fact is an event of a stream: JSON, because some systems keep nothing else.
type fact struct {
	N    int64  `json:"n"` // its version
	Text string `json:"text"`
}

func (f fact) bytes() []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // it is ours
	}
	return text
}

const odd = "é \" \\ \u2028 😀"

// appends appends n events at a version; the events say the versions from there on.
func appends(to string, expected int64, n int) lines.Request {
	return appendsFrom(to, expected, expected, n)
}

func appendsFrom(to string, expected, first int64, n int) lines.Request {
	var values [][]byte
	for i := range int64(n) {
		values = append(values, fact{first + i, odd}.bytes())
	}
	return lines.Request{"op": "append", "to": to, "expected": expected, "values": values}
}

func (s *session) at(ctx context.Context, want int64, r lines.Request) error {
	a, err := s.ask(ctx, r)
	if err == nil && a.Version != want {
		err = fmt.Errorf("an append at %v led to version %d; it must be %d, the number of events", r["expected"], a.Version, want)
	}
	return err
}

// conflict makes an append that must be refused at a version.
func (s *session) conflict(ctx context.Context, actual int64, r lines.Request) error {
	a, err := s.answer(ctx, r)
	switch {
	case err != nil:
		return err
	case a.Conflict == nil && a.OK == 1:
		return fmt.Errorf("an append at version %v was taken, and the stream is at %d", r["expected"], actual)
	case a.Conflict == nil:
		return fmt.Errorf("an append at version %v failed without conflict, which says the version that the stream is at: %s", r["expected"], firstLine(a.Failure()))
	case *a.Conflict != actual:
		return fmt.Errorf("conflict says version %d, and the stream is at %d", *a.Conflict, actual)
	}
	return nil
}

// has reads a stream from a version on, and compares it with the events of these versions.
func (s *session) has(ctx context.Context, stream string, at int64, most int, want int64) error {
	a, err := s.ask(ctx, lines.Request{"op": "read", "from": stream, "at": at, "most": most})
	if err != nil {
		return err
	}
	if int64(len(a.Versions)) != want || int64(len(a.Values)) != want {
		return fmt.Errorf("read from %d, at most %d (0 is all), gave %d versions and %d values; it must be %d", at, most, len(a.Versions), len(a.Values), want)
	}
	for i, v := range a.Values {
		var f fact
		if err := json.Unmarshal(v, &f); err != nil || f.Text != odd {
			return fmt.Errorf("the event of version %d is not what was appended: %s", a.Versions[i], short(string(v)))
		}
		if version := at + int64(i); a.Versions[i] != version || f.N != version {
			return fmt.Errorf("event %d of the answer has version %d and is event %d of the stream; both must be %d, and the first one of a stream is 0", i, a.Versions[i], f.N, version)
		}
	}
	return nil
}

// ofStreams are about event-sourced streams.
var ofStreams = []Check{
	{"stream-version", "an append of n events at version v leads to version v+n; a new stream is at 0", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "version"
		_, err := s.ask(ctx, createStreams)
		return errors.Join(err, s.at(ctx, 1, appends(name, 0, 1)), s.at(ctx, 4, appends(name, 1, 3)))
	}},
	{"stream-any", "an append at -1 is taken at whatever version the stream has", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "any"
		_, err := s.ask(ctx, createStreams)
		return errors.Join(err, s.at(ctx, 2, appendsFrom(name, system.AnyVersion, 0, 2)), s.at(ctx, 3, appendsFrom(name, system.AnyVersion, 2, 1)), s.has(ctx, name, 0, 0, 3))
	}},
	{"stream-conflict", "an append at another version is refused with the version that the stream is at", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "conflict"
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		if err := s.at(ctx, 3, appends(name, 0, 3)); err != nil {
			return err
		}
		return errors.Join(s.conflict(ctx, 3, appends(name, 1, 1)), s.conflict(ctx, 3, appends(name, 7, 1)), s.conflict(ctx, 3, appends(name, 0, 1)))
	}},
	{"stream-nothing", "nothing of a refused append is there", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "nothing"
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		if err := s.at(ctx, 2, appends(name, 0, 2)); err != nil {
			return err
		}
		if _, err := s.answer(ctx, appends(name, 1, 2)); err != nil {
			return err
		}
		return s.has(ctx, name, 0, 0, 2)
	}},
	{"stream-race", "of ten appends at one version, at once, one is taken", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "race"
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		var mu sync.Mutex // guards taken
		taken := 0
		all, ctx := errgroup.WithContext(ctx)
		for range 10 {
			all.Go(func() error {
				a, err := s.answer(ctx, appends(name, 0, 1))
				if a.OK == 1 {
					mu.Lock()
					defer mu.Unlock()
					taken++
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		if taken != 1 {
			return fmt.Errorf("%d were taken", taken)
		}
		return nil
	}},
	{"stream-read", "a read gives the events from a version on, at most so many, in order; of a stream that is not there, none", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "read"
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		for v := range int64(5) {
			if err := s.at(ctx, v*3+3, appends(name, v*3, 3)); err != nil {
				return err
			}
		}
		return errors.Join(s.has(ctx, name, 0, 0, 15), s.has(ctx, name, 4, 5, 5), s.has(ctx, name, 13, 100, 2), s.has(ctx, name, 15, 0, 0), s.has(ctx, s.prefix+"not-there", 0, 0, 0))
	}},
	{"stream-kept", "in mode durable an acknowledged append is there after kill -9 of the adapter", lines.Streams, func(ctx context.Context, s *session) error {
		name := s.prefix + "kept"
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		for v := range int64(20) {
			if err := s.at(ctx, v+1, appends(name, v, 1)); err != nil {
				return err
			}
		}
		if err := s.again(ctx); err != nil {
			return err
		}
		return errors.Join(s.has(ctx, name, 0, 0, 20), s.conflict(ctx, 20, appends(name, 19, 1)), s.at(ctx, 21, appends(name, 20, 1)))
	}},
	{"follow", "a follower gets every event of all streams once, those of a stream in order, also what comes later", lines.Follow, func(ctx context.Context, s *session) error {
		if _, err := s.ask(ctx, createStreams); err != nil {
			return err
		}
		names := []string{s.prefix + "f1", s.prefix + "f2", s.prefix + "f3"}
		if err := s.extend(ctx, names, 0); err != nil {
			return err
		}
		f := &following{prefix: s.prefix, next: map[string]int64{}}
		follows, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.pipe.Listen(follows, lines.Request{"op": "follow"}, f.hear) }()
		err := errors.Join(f.wait(ctx, 30), s.extend(ctx, names, 10), f.wait(ctx, 60))
		stop()
		return errors.Join(err, <-ended)
	}},
}

// extend appends ten events to each stream.
func (s *session) extend(ctx context.Context, names []string, from int64) error {
	for v := from; v < from+10; v++ {
		for _, name := range names {
			if err := s.at(ctx, v+1, appends(name, v, 1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// following checks what a follower gets.
type following struct {
	prefix string

	mu    sync.Mutex // guards all below
	next  map[string]int64
	n     int
	wrong error
}

func (f *following) hear(a lines.Answer) {
	if !strings.HasPrefix(a.Stream, f.prefix) {
		return // of another run
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var e fact
	if err := json.Unmarshal(a.Got, &e); f.wrong == nil && (err != nil || e.N != a.Version || a.Version != f.next[a.Stream]) {
		f.wrong = fmt.Errorf("of a stream it got version %d, which is event %d, and %d was next", a.Version, e.N, f.next[a.Stream])
	}
	f.next[a.Stream]++
	f.n++
}

func (f *following) wait(ctx context.Context, n int) error {
	came := func() (int, error) { f.mu.Lock(); defer f.mu.Unlock(); return f.n, f.wrong }
	for until := time.Now().Add(comesWait); ; time.Sleep(2 * time.Millisecond) {
		have, wrong := came()
		switch {
		case wrong != nil:
			return wrong
		case have >= n:
			time.Sleep(silence)
			if have, wrong = came(); have > n {
				return errors.Join(wrong, fmt.Errorf("%d events came, and %d were there", have, n))
			}
			return wrong
		case time.Now().After(until) || ctx.Err() != nil:
			return fmt.Errorf("%d of %d events came within %v", have, n, comesWait)
		}
	}
}
