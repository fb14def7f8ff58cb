package system

import (
	"context"
	"sync"
	"time"
)

// null keeps everything in memory, in this process: the most that the generator can do. Nothing
// is faster; a result near it is one of the generator.
func null() System {
	return System{
		Name: "null", About: "memory of this process: the ceiling of the generator, and no system", Ordered: true,
		Modes: map[Mode]Settings{Shipped: {"durability": "none"}},
		Start: func(context.Context, Place, Mode) (Server, error) { return newMemory(lie{}), nil },
	}
}

// liars each break one promise. The benchmark must catch every one of them.
//
// liar-stalls and liar-answers-late break none: their figures must show what they do. A clock that
// starts when a call is sent would hide it (coordinated omission): a writer that waits 300 ms for
// one late answer sends nothing meanwhile, so one call of 500 is slow and p99 is that of a fast
// system. From when the calls were due, those that waited behind the late one are slow, too.
func liars() []System {
	var all []System
	for _, l := range []struct {
		name, about string
		lie         lie
	}{
		{"liar-loses", "loses one event of a thousand", lie{lose: 1000}},
		{"liar-loses-one", "loses one event of a million", lie{lose: 1_000_000}},
		{"liar-repeats", "delivers one event of a thousand again", lie{repeat: 1000}},
		{"liar-swaps", "delivers two events of a key in the wrong order", lie{swap: 1000}},
		{"liar-skips", "skips a version of a stream", lie{skip: 50}},
		{"liar-overwrites", "an append replaces the newest event", lie{overwrite: 50}},
		{"liar-forgets", "does not tell a projection of every event", lie{forget: 50}},
		{"liar-overbooks", "does not show the newest event with a tag", lie{stale: 50}},
		{"liar-dies", "after a kill does not have all that it acknowledged", lie{mortal: true}},
		{"liar-dawdles", "takes ten milliseconds for each message, and to read a stream", lie{dawdle: 10 * time.Millisecond}},
		{"liar-tires", "takes ten milliseconds for each event of a replay", lie{tire: 10 * time.Millisecond}},
		{"liar-flushes-not", "says that it flushes, and does not", lie{}},
		{"liar-stalls", "stalls for a second at the end", lie{stall: time.Second}},
		{"liar-answers-late", "answers one call of 500 after 300 ms", lie{late: 500}},
		{"liar-never-answers", "stops answering near the end", lie{mute: true}},
	} {
		mode := Shipped
		if l.name == "liar-flushes-not" {
			mode = Durable
		}
		all = append(all, System{
			Name: l.name, About: l.about, Ordered: true, Lies: true, Modes: map[Mode]Settings{mode: {"durability": "said to be flushed"}},
			Start: func(context.Context, Place, Mode) (Server, error) { return newMemory(l.lie), nil },
		})
	}
	return all
}

// lie is which promise a memory breaks; the zero value: none.
type lie struct {
	lose, repeat, swap, skip int           // one of so many
	overwrite, forget, stale int           // one of so many
	stall                    time.Duration // once, when Ending was called
	late                     int           // one answer of so many comes lateBy later
	dawdle                   time.Duration // of a worker, for each message; of who reads a stream
	tire                     time.Duration // of a projection after the first, for each event
	mute                     bool          // calls are not answered after Ending was called
	mortal                   bool          // it can be killed
}

// lateBy is how late a late answer is.
const lateBy = 300 * time.Millisecond

// memory is a log, a queue and streams.
type memory struct {
	lie lie

	mu      sync.Mutex // guards all below
	more    *sync.Cond
	topics  map[string][][]byte
	streams map[string][][]byte
	tagged  map[string][][]byte
	all     []Followed // the events of all streams
	queue   [][]byte
	ending  bool
	stalled bool
	dead    bool
	follows int
	n       int
	answers int
}

func newMemory(l lie) *memory {
	m := &memory{lie: l, topics: map[string][][]byte{}, streams: map[string][][]byte{}, tagged: map[string][][]byte{}}
	m.more = sync.NewCond(&m.mu)
	return m
}

func (m *memory) Target() any  { return m }
func (m *memory) Close() error { return nil }

// Faults are those of a liar.
func (m *memory) Faults() Faults {
	if !m.lie.mortal {
		return Faults{}
	}
	return Faults{Kill: func() (func() error, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dead = true
		return func() error { return nil }, nil
	}}
}

// Ending tells a liar that the measurement is about to end.
func (m *memory) Ending() { m.mu.Lock(); defer m.mu.Unlock(); m.ending = true }

func (m *memory) Create(context.Context, string, int) error { return nil }
func (m *memory) CreateQueue(context.Context, string) error { return nil }
func (m *memory) CreateStreams(context.Context) error       { return nil }

// wait is where a liar stalls, or stops answering.
func (m *memory) wait(ctx context.Context) error {
	m.mu.Lock()
	ending, first := m.ending, !m.stalled
	if ending && m.lie.stall > 0 {
		m.stalled = true
	}
	m.mu.Unlock()
	switch {
	case ending && m.lie.mute:
		<-ctx.Done()
		return ErrUnsure
	case ending && m.lie.stall > 0 && first:
		time.Sleep(m.lie.stall)
	}
	return nil
}

// answer is where a liar lets a caller wait although the event is there.
func (m *memory) answer(ctx context.Context) {
	m.mu.Lock()
	m.answers++
	late := m.lie.late > 0 && m.answers%m.lie.late == 0
	m.mu.Unlock()
	if late {
		pause(ctx, lateBy)
	}
}

// kept is what a liar keeps of values.
func (m *memory) kept(values [][]byte) (kept [][]byte) {
	for _, v := range values {
		m.n++
		if m.dead && m.n%1000 == 0 {
			continue // as if it had been killed just after it was acknowledged
		}
		if m.lie.lose > 0 && m.n%m.lie.lose == 0 {
			continue
		}
		kept = append(kept, v)
		if m.lie.repeat > 0 && m.n%m.lie.repeat == 0 {
			kept = append(kept, v)
		}
	}
	return kept
}

func (m *memory) Publish(ctx context.Context, topic string, events []Event) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	defer m.answer(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	values := make([][]byte, len(events))
	for i, e := range events {
		values[i] = e.Value
	}
	if m.lie.swap > 0 && len(values) > 1 && m.n%m.lie.swap < len(values) {
		values[0], values[1] = values[1], values[0]
	}
	m.topics[topic] = append(m.topics[topic], m.kept(values)...)
	m.more.Broadcast()
	return nil
}

// wakeAt wakes all waiters when ctx ends.
func (m *memory) wakeAt(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { m.mu.Lock(); defer m.mu.Unlock(); m.more.Broadcast() })
}

func (m *memory) Consume(ctx context.Context, topic, _ string, _ int, deliver func([]byte)) error {
	defer m.wakeAt(ctx)()
	for next := 0; ; {
		m.mu.Lock()
		for len(m.topics[topic]) == next && ctx.Err() == nil {
			m.more.Wait()
		}
		values := m.topics[topic][next:]
		m.mu.Unlock()
		if ctx.Err() != nil && len(values) == 0 {
			return nil
		}
		for _, v := range values {
			deliver(v)
		}
		next += len(values)
	}
}

func (m *memory) Enqueue(ctx context.Context, _ string, values [][]byte) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	defer m.answer(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = append(m.queue, m.kept(values)...)
	m.more.Broadcast()
	return nil
}

func (m *memory) Work(ctx context.Context, _ string, workers, batch int, got, acked func([]byte)) error {
	defer m.wakeAt(ctx)()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				m.mu.Lock()
				for len(m.queue) == 0 && ctx.Err() == nil {
					m.more.Wait()
				}
				if ctx.Err() != nil {
					m.mu.Unlock()
					return
				}
				n := min(batch, len(m.queue))
				mine := m.queue[:n:n]
				m.queue = m.queue[n:]
				m.mu.Unlock()
				for _, v := range mine {
					pause(ctx, m.lie.dawdle)
					got(v)
					acked(v)
				}
			}
		})
	}
	all.Wait()
	return nil
}

func (m *memory) Left(context.Context, string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.queue)), nil
}

func (m *memory) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	if err := m.wait(ctx); err != nil {
		return 0, err
	}
	defer m.answer(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	at := int64(len(m.streams[stream]))
	switch {
	case expected == AnyVersion:
		expected = at
	case at != expected:
		return 0, &Conflict{Actual: at}
	}
	if n := int64(m.lie.overwrite); n > 0 && at%n == n-1 {
		m.streams[stream] = m.streams[stream][:at-1]
	}
	m.streams[stream] = append(m.streams[stream], values...)
	for i, v := range values {
		m.all = append(m.all, Followed{Stream: stream, Version: expected + int64(i), Value: v})
	}
	m.more.Broadcast()
	return expected + int64(len(values)), nil
}

func (m *memory) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	pause(ctx, m.lie.dawdle)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := from; i < int64(len(m.streams[stream])) && (most == 0 || len(values) < most); i++ {
		if m.lie.skip > 0 && i%int64(m.lie.skip) == int64(m.lie.skip)-1 {
			continue
		}
		versions, values = append(versions, i), append(values, m.streams[stream][i])
	}
	return versions, values, nil
}

func (m *memory) Follow(ctx context.Context, deliver func(Followed)) error {
	defer m.wakeAt(ctx)()
	m.mu.Lock()
	m.follows++
	again := m.follows > 1
	m.mu.Unlock()
	for next := 0; ; {
		m.mu.Lock()
		for len(m.all) == next && ctx.Err() == nil {
			m.more.Wait()
		}
		events := m.all[next:]
		m.mu.Unlock()
		if ctx.Err() != nil && len(events) == 0 {
			return nil
		}
		for i, e := range events {
			if again && m.lie.tire > 0 {
				if pause(ctx, m.lie.tire); ctx.Err() != nil {
					return nil
				}
			}
			if m.lie.forget > 0 && (next+i)%m.lie.forget == m.lie.forget-1 {
				continue
			}
			e.Saved = time.Now()
			deliver(e)
		}
		next += len(events)
	}
}

func (m *memory) ReadTagged(_ context.Context, tags []string) (values [][]byte, boundary any, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 0
	for _, t := range tags {
		values, all = append(values, m.tagged[t]...), all+len(m.tagged[t])
	}
	if m.n++; m.lie.stale > 0 && m.n%m.lie.stale == 0 && len(values) > 0 {
		values = values[:len(values)-1]
	}
	return values, all, nil
}

func (m *memory) AppendWithin(_ context.Context, tags []string, boundary any, _ string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 0
	for _, t := range tags {
		all += len(m.tagged[t])
	}
	if all != boundary.(int) {
		return ErrBoundary
	}
	for _, t := range tags {
		m.tagged[t] = append(m.tagged[t], value)
	}
	return nil
}
