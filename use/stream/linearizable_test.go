package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/stream"
)

// asked is what a worker asks about one stream.
type asked struct {
	verb     string // append, delete or read
	stream   string
	expected stream.Expected
	values   string // of the events to append, of width bytes each
}

const width = 4

// told is what the worker hears.
type told struct {
	verb   string // unknown, done, conflict or already
	first  int64
	actual int64
	exists bool
	values string // that were read
}

// model is a stream that does one thing at a time.
type model struct {
	next   int64
	exists bool
	values string
}

func (m model) allows(e stream.Expected) bool {
	switch e {
	case stream.Any:
		return true
	case stream.NoStream:
		return !m.exists
	case stream.Exists:
		return m.exists
	}
	return int64(e) == m.next
}

// then returns what may have become of the stream; none: it cannot have answered so. A conflict is
// legal only if the version was another, and is the one that was told (S1).
func (m model) then(a asked, t told) []model {
	guard := m.allows(a.expected)
	var after model
	switch a.verb {
	case "append":
		after = model{m.next + int64(len(a.values)/width), true, m.values + a.values}
	case "delete":
		guard = guard && m.exists
		after = model{next: m.next}
	case "read":
		guard, after = m.values == t.values, m
	}
	switch {
	case t.verb == "unknown" && guard:
		return []model{m, after}
	case t.verb == "unknown":
		return []model{m}
	case t.verb == "done" && guard && (a.verb != "append" || t.first == m.next):
		return []model{after}
	case t.verb == "already" && a.verb == "delete" && !m.exists && m.allows(a.expected):
		return []model{m}
	case t.verb == "conflict" && !guard && t.actual == m.next && t.exists == m.exists:
		return []model{m}
	}
	return nil
}

func oneStream() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			at := make(map[string]int)
			for _, o := range history {
				name := o.Input.(asked).stream
				n, is := at[name]
				if !is {
					n, at[name] = len(parts), len(parts)
					parts = append(parts, nil)
				}
				parts[n] = append(parts[n], o)
			}
			return parts
		},
		Init: func() []any { return []any{model{}} },
		Step: func(state, input, output any) (next []any) {
			for _, m := range state.(model).then(input.(asked), output.(told)) {
				next = append(next, m)
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v: %+v", input, output)
		},
	}).ToModel()
}

// lossy is a store that loses some answers of commits, and does not get some.
type lossy struct {
	eventlog.Store
	on     atomic.Bool
	mu     sync.Mutex // guards random
	random *rand.Rand
}

func (s *lossy) Unwrap() eventlog.Store { return s.Store }

func (l *lossy) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	l.mu.Lock()
	dice := l.random.Float64()
	l.mu.Unlock()
	if !l.on.Load() {
		dice = 1
	}
	if dice < 0.05 {
		return nil, fmt.Errorf("%w: for the test", eventlog.ErrUnavailable)
	}
	out, err := l.Store.Commit(ctx, flush)
	if dice < 0.15 && err == nil {
		return nil, fmt.Errorf("%w: the answer is lost for the test", eventlog.ErrUnsure)
	}
	return out, err
}

// Two processes append to streams, delete and read them, and lose answers of the store: what they
// are told is what streams tell that do one thing at a time (S1 to S4, S6, S7).
//
// WEIR_SEEDS says how many histories to run on each store; WEIR_SEED one of them.
func TestWhatWritersAreToldIsLinearizable(t *testing.T) {
	for _, number := range seed.Histories(t, 2) {
		onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) { oneHistory(t, reopen, number) })
	}
}

func oneHistory(t *testing.T, reopen func(*testing.T) eventlog.Store, seed uint64) {
	t.Logf("seed %d", seed)
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	var losing []*lossy
	open := func(t *testing.T) eventlog.Store {
		l := &lossy{Store: reopen(t), random: random(uint64(100 + len(losing)))}
		losing = append(losing, l)
		return l
	}
	_, here := orders(t, open)
	_, there := another(t, open)
	for _, l := range losing {
		l.on.Store(true)
	}
	var (
		mu      sync.Mutex // guards history
		history []porcupine.Operation
		working sync.WaitGroup
		began   = time.Now()
	)
	for n := range 4 {
		w := &writer{t: t, name: n, c: []*stream.Category{here, there}[n%2], random: random(uint64(n)), known: make(map[string]int64)}
		working.Go(func() {
			for range 40 {
				a := w.ask()
				called := time.Since(began).Nanoseconds()
				heard := w.act(a)
				returned := time.Since(began).Nanoseconds()
				if heard.verb == "unknown" {
					returned = 1 << 62
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: n, Input: a, Output: heard, Call: called, Return: returned})
				mu.Unlock()
			}
		})
	}
	working.Wait()
	for _, l := range losing {
		l.on.Store(false)
	}
	for _, name := range names { // versions have no gaps, and the model knows each event (S2)
		a := asked{verb: "read", stream: name}
		w := &writer{t: t, c: here, known: make(map[string]int64)}
		called := time.Since(began).Nanoseconds()
		history = append(history, porcupine.Operation{ClientId: 99, Input: a, Output: w.act(a), Call: called, Return: time.Since(began).Nanoseconds()})
	}
	m := oneStream()
	for _, part := range m.Partition(history) {
		result := porcupine.CheckOperationsTimeout(m, part, time.Minute)
		if result == porcupine.Unknown {
			t.Logf("seed %d: the search for an order took too long", seed)
		}
		if result == porcupine.Illegal {
			all := ""
			for _, o := range part {
				all += fmt.Sprintf("%8d … %8d µs, writer %d: %s\n", o.Call/1000, min(o.Return/1000, 99999999), o.ClientId, m.DescribeOperation(o.Input, o.Output))
			}
			t.Errorf("seed %d: what was told of a stream is not what any stream tells (%v):\n%s", seed, result, all)
		}
	}
}

var names = []string{"a", "b"}

// writer makes random calls in one process.
type writer struct {
	t      *testing.T
	name   int
	c      *stream.Category
	random *rand.Rand
	count  int
	known  map[string]int64 // the version that a stream was at when this writer last heard of it
}

func (w *writer) ask() asked {
	a := asked{verb: "append", stream: names[w.random.IntN(len(names))]}
	a.expected = stream.Expected(max(0, w.known[a.stream]+int64(w.random.IntN(8)/6)-int64(w.random.IntN(8)/6)))
	switch w.random.IntN(10) {
	case 0, 1:
		a.expected = stream.Any
	case 2:
		a.expected = stream.NoStream
	case 3:
		a.expected = stream.Exists
	}
	switch w.random.IntN(10) {
	case 0:
		a.verb = "delete"
		return a
	case 1, 2:
		a.verb, a.expected = "read", 0
		return a
	}
	for range 1 + w.random.IntN(3) {
		a.values += fmt.Sprintf("%d%03d", w.name, w.count)
		w.count++
	}
	return a
}

// act asks, and asks again with the same ids after a lost answer, as an application does; sometimes
// it gives up.
func (w *writer) act(a asked) (heard told) {
	if a.verb == "read" {
		var all string
		for e, err := range w.c.Events(w.t.Context(), a.stream, stream.Range{}) {
			if err != nil {
				w.t.Errorf("%+v: %v", a, err)
			}
			all += string(e.Data)
		}
		return told{verb: "done", values: all}
	}
	var events []stream.NewEvent
	for i := 0; i < len(a.values); i += width {
		value := a.values[i : i+width]
		events = append(events, stream.NewEvent{ID: "id " + value, Type: "value", Data: []byte(value)})
	}
	for lost := false; ; {
		var done stream.Appended
		var err error
		if a.verb == "delete" {
			done, err = w.c.Delete(w.t.Context(), a.stream, a.expected)
		} else {
			done, err = w.c.Append(w.t.Context(), a.stream, a.expected, events...)
		}
		var conflict *stream.ConflictError
		switch {
		case err == nil && a.verb == "delete" && done.Duplicate:
			w.known[a.stream] = done.Version
			return told{verb: "already"}
		case err == nil:
			w.known[a.stream] = done.Version
			return told{verb: "done", first: done.First}
		case errors.As(err, &conflict) && lost: // the first attempt may have been deleted since
			w.known[a.stream] = conflict.Actual
			return told{verb: "unknown"}
		case errors.As(err, &conflict):
			w.known[a.stream] = conflict.Actual
			return told{verb: "conflict", actual: conflict.Actual, exists: conflict.Exists}
		case errors.Is(err, eventlog.ErrUnsure) && (a.verb == "delete" || w.random.IntN(4) == 0):
			return told{verb: "unknown"}
		case errors.Is(err, eventlog.ErrUnsure):
			lost = true
		case errors.Is(err, eventlog.ErrUnavailable):
		default:
			w.t.Errorf("%+v: %v", a, err)
			return told{verb: "unknown"}
		}
	}
}
