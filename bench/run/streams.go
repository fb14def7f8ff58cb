package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/ledger"
)

// The groups that get the events of streams.
const (
	reader     = "reader"     // reads all streams when the writers have stopped
	projection = "projection" // follows them meanwhile
	replay     = "replay"     // follows them from the beginning, afterwards
)

// latest are streams behind a service that knows their versions.
type latest interface {
	AppendLatest(ctx context.Context, stream string, values [][]byte) (after int64, conflicts int, err error)
}

// appends is the load on streams. With fewer streams than writers the writers share them, and try
// again after a conflict; otherwise each writer has streams of its own, so that a conflict is a
// fault.
type appends struct {
	m       *measurement
	streams system.Streams
	names   []string
	at      []atomic.Int64 // the versions that are known to have been acknowledged
	turn    []int          // how many calls each writer has begun
	filled  []filled

	mu    sync.Mutex // guards all below
	taken map[taken]bool
	next  map[string]int64 // by stream: the version that the projection is to get next
}

// taken is a version that an append was acknowledged at. Only shared streams note it.
type taken struct {
	stream  int
	version int64
}

// filled is a stream that was there before.
type filled struct {
	name   string
	length int64
}

func (m *measurement) streams(s system.Streams) kind {
	w := m.workload
	a := &appends{m: m, streams: s, at: make([]atomic.Int64, w.Streams), turn: make([]int, w.Writers), taken: map[taken]bool{}, next: map[string]int64{}}
	for i := range w.Streams {
		a.names = append(a.names, fmt.Sprintf("currency-%d", i))
	}
	m.book.Group(reader)
	k := kind{send: a.send, after: a.after, fill: a.fill, create: s.CreateStreams}
	k.read = func(ctx context.Context) error { <-ctx.Done(); return nil }
	if w.Follow {
		f, is := s.(system.Follower)
		if !is {
			return kind{}
		}
		m.book.Group(projection)
		k.groups = 1
		k.read = func(ctx context.Context) error { return f.Follow(ctx, a.projected) }
	}
	return k
}

func (a *appends) shared() bool { return len(a.names) < a.m.workload.Writers }

// pick returns the stream that a writer appends to next.
func (a *appends) pick(writer int) int {
	n := a.turn[writer]
	a.turn[writer]++
	if a.shared() {
		return n % len(a.names)
	}
	own := len(a.names) / a.m.workload.Writers
	return writer*own + n%own
}

func (a *appends) send(ctx context.Context, writer int, values [][]byte) error {
	i := a.pick(writer)
	count := int64(len(values))
	for {
		known := a.at[i].Load()
		after, expected, err := a.append(ctx, i, known, values)
		var conflict *system.Conflict
		switch {
		case errors.As(err, &conflict):
			a.m.conflicts.Add(1)
			if conflict.Actual < known || conflict.Actual == expected {
				a.m.book.Gap(fmt.Sprintf("an append at version %d was refused because %s is at %d, and %d was acknowledged before", expected, a.names[i], conflict.Actual, known))
			}
			raise(&a.at[i], conflict.Actual)
			if a.shared() && ctx.Err() == nil {
				continue
			}
			return err
		case err != nil:
			return err
		case expected >= 0 && after != expected+count, after < known+count:
			a.m.book.Gap(fmt.Sprintf("an append of %d events at version %d led to version %d of %s, and %d was acknowledged before", count, expected, after, a.names[i], known))
		}
		raise(&a.at[i], after)
		if a.shared() {
			a.take(i, after-count, count)
		}
		return nil
	}
}

// append appends as the workload says; expected is negative if the system knows the version.
func (a *appends) append(ctx context.Context, stream int, known int64, values [][]byte) (after, expected int64, err error) {
	if a.m.workload.Expect == workload.Any {
		after, err = a.streams.Append(ctx, a.names[stream], system.AnyVersion, values)
		return after, system.AnyVersion, err
	}
	if l, is := a.streams.(latest); is && a.shared() {
		after, conflicts, err := l.AppendLatest(ctx, a.names[stream], values)
		a.m.conflicts.Add(int64(conflicts))
		return after, system.AnyVersion, err
	}
	after, err = a.streams.Append(ctx, a.names[stream], known, values)
	return after, known, err
}

// take notes the versions of a success: no other has them.
func (a *appends) take(stream int, first, count int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v := first; v < first+count; v++ {
		if a.taken[taken{stream, v}] {
			a.m.book.Gap(fmt.Sprintf("two appends to %s were acknowledged at version %d", a.names[stream], v))
		}
		a.taken[taken{stream, v}] = true
	}
}

func raise(n *atomic.Int64, v int64) {
	for old := n.Load(); old < v && !n.CompareAndSwap(old, v); old = n.Load() {
	}
}

// projected notes what the projection has.
func (a *appends) projected(e system.Followed) {
	a.m.projectedBy(projection, e)
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Version != a.next[e.Stream] {
		a.m.book.Gap(fmt.Sprintf("the projection got version %d of %s, and version %d was next", e.Version, e.Stream, a.next[e.Stream]))
	}
	a.next[e.Stream] = e.Version + 1
}

// projectedBy notes an event that a projection had at a time that it tells itself.
func (m *measurement) projectedBy(group string, e system.Followed) {
	s, ok := load.Deliver(m.book, group, e.Value)
	if ok && figure(s) && m.counted(time.Duration(s.Due)) {
		m.endToEnd.note(e.Saved.Sub(m.begin) - time.Duration(s.Due))
		if !e.Called.IsZero() {
			m.projectedIn.note(e.Saved.Sub(e.Called))
		}
	}
	m.read.Add(1)
}

// readMost is how many events of a stream are read at once.
const readMost = 1000

// after reads every stream whole: each version is there, in order, and each event once.
func (a *appends) after(ctx context.Context) error {
	var all errgroup.Group
	all.SetLimit(8)
	for i, name := range a.names {
		if a.at[i].Load() > 0 {
			all.Go(func() error { return a.readAll(ctx, name) })
		}
	}
	for _, f := range a.filled {
		all.Go(func() error { return a.readAll(ctx, f.name) })
	}
	if err := all.Wait(); err != nil || len(a.filled) == 0 {
		return err
	}
	return a.readings(ctx)
}

func (a *appends) readAll(ctx context.Context, name string) error {
	for from := int64(0); ; {
		versions, values, err := a.streams.ReadStream(ctx, name, from, readMost)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		for i, v := range values {
			if versions[i] != from+int64(i) {
				a.m.book.Gap(fmt.Sprintf("event %d of %s has version %d", from+int64(i), name, versions[i]))
			}
			load.Deliver(a.m.book, reader, v)
		}
		if len(values) < readMost {
			if from == 0 && len(values) == 0 {
				a.m.book.Gap(name + " is empty")
			}
			return nil
		}
		from = versions[len(versions)-1] + 1
	}
}

// The events that are there before: a tenth in one stream, the others in streams of a hundred.
const (
	shortLength = 100
	fillers     = 8
)

// fill appends what is to be there before.
func (a *appends) fill(ctx context.Context) error {
	total := int64(a.m.workload.Fill)
	if total == 0 {
		return nil
	}
	a.filled = []filled{{"currency-long", total / 10 / shortLength * shortLength}}
	for n := int64(0); n < (total-total/10)/shortLength; n++ {
		a.filled = append(a.filled, filled{fmt.Sprintf("currency-short%d", n), shortLength})
	}
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	seqs := make([]uint64, fillers)
	for f := range fillers {
		all.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(a.filled) {
					return nil
				}
				if err := a.fillStream(ctx, a.filled[i], uint32(fillWriter+f), &seqs[f]); err != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}

func (a *appends) fillStream(ctx context.Context, f filled, writer uint32, seq *uint64) error {
	for at := int64(0); at < f.length; at += shortLength {
		values := make([][]byte, shortLength)
		for i := range values {
			values[i] = a.m.payload(ledger.Stamp{Run: a.m.seed, Writer: writer, Seq: *seq + uint64(i)})
		}
		if _, err := a.streams.Append(ctx, f.name, at, values); err != nil {
			return fmt.Errorf("fill %s: %w", f.name, err)
		}
		a.m.book.Acked(writer, *seq, shortLength)
		a.m.acked.Add(shortLength)
		*seq += shortLength
	}
	return nil
}

// Readings are what reading costs with many events there.
type Readings struct {
	Short   *Latency `json:"stream_of_100"`             // to read a stream of a hundred events whole
	Tail    *Latency `json:"last_100_of_long"`          // to read the last hundred events of the longest one
	Replay  float64  `json:"replay_per_second"`         // of a projection that begins anew; 0: it cannot be followed
	Bytes   float64  `json:"bytes_per_event,omitempty"` // on disk, all that is there
	Entries int64    `json:"events"`
}

// readingsEach is how often each is read.
const readingsEach = 1000

// readingsFor is how long each is read at most: a system that looks at all events for each question
// would take hours. Tests have less time.
var readingsFor = 30 * time.Second

func (a *appends) readings(ctx context.Context) error {
	r := &Readings{Entries: a.m.acked.Load()}
	for _, of := range []struct {
		into **Latency
		pick func() (string, int64)
	}{
		{&r.Short, func() (string, int64) { return a.filled[1+rand.IntN(len(a.filled)-1)].name, 0 }},
		{&r.Tail, func() (string, int64) { return a.filled[0].name, a.filled[0].length - shortLength }},
	} {
		took := newTimes()
		for n, end := 0, time.Now().Add(readingsFor); n < readingsEach && (n == 0 || time.Now().Before(end)); n++ {
			name, from := of.pick()
			began := time.Now()
			_, values, err := a.streams.ReadStream(ctx, name, from, shortLength)
			if err != nil || len(values) != shortLength {
				return fmt.Errorf("read %d events of %s from %d: %d came: %w", shortLength, name, from, len(values), err)
			}
			took.note(time.Since(began))
		}
		*of.into = took.latency()
	}
	if s, is := a.m.server.(system.Sizer); is {
		size, err := s.Size(ctx)
		if err != nil {
			return err
		}
		r.Bytes = float64(size) / float64(r.Entries)
	}
	a.m.readings = r
	f, is := a.streams.(system.Follower)
	if !is {
		return nil
	}
	a.m.book.Group(replay)
	wait := a.m.workload.Phases.Drain + time.Duration(a.m.workload.Fill)*fillReadWait
	following, stop := context.WithTimeout(ctx, wait)
	defer stop()
	var got, last, took atomic.Int64
	began := time.Now()
	err := f.Follow(following, func(e system.Followed) {
		load.Deliver(a.m.book, replay, e.Value)
		last.Store(int64(time.Since(began)))
		if got.Add(1) >= r.Entries {
			took.Store(last.Load())
			stop()
		}
	})
	if took.Load() > 0 {
		r.Replay = float64(r.Entries) / time.Duration(took.Load()).Seconds()
	} else if time.Since(began)-time.Duration(last.Load()) < stillComes { // what has not come is not lost
		a.m.slow = fmt.Sprintf("too slow: a replay had %d of %d events after %v, and some still came", got.Load(), r.Entries, wait)
	}
	return err
}
