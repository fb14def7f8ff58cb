package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// appender is group commit. Callers put tickets in a queue; one goroutine takes all that is waiting, commits
// it in one trip, and answers. While a flush travels the next one gathers, so a busy log batches by itself and an idle one
// flushes at once: there is no timer.
type appender struct {
	store     Store
	tail      *tail
	gate      *gate
	doubt     func() // has somebody find out whether the store lost its end
	cfg       Config
	log       *slog.Logger
	sealing   func(Partition) sealing
	producers *producers // owned by run
	due       int        // how many tickets the next flush may hope for, those of callers just answered included; owned by run
	answered  time.Time  // when that was; owned by run

	room *semaphore.Weighted // bytes of the queue
	more chan struct{}       // holds one value when tickets came or the queue closed

	mu     sync.Mutex // guards queue and closed
	queue  []*Ticket
	closed bool
}

func newAppender(store Store, tail *tail, sealing func(Partition) sealing, gate *gate, doubt func(), cfg Config) *appender {
	return &appender{
		store: store, tail: tail, sealing: sealing, gate: gate, doubt: doubt, cfg: cfg, log: cfg.Logger,
		producers: newProducers(),
		room:      semaphore.NewWeighted(cfg.QueueBytes),
		more:      make(chan struct{}, 1),
	}
}

func (a *appender) submit(ctx context.Context, t *Ticket) *Ticket {
	t.done = make(chan struct{})
	t.trace = a.cfg.Tracer.Inject(ctx)
	t.size = min(t.cost(), a.cfg.QueueBytes)
	if err := a.room.Acquire(ctx, t.size); err != nil {
		t.resolve(Outcome{}, fmt.Errorf("append: %w: the queue is full, with %d bytes waiting for the store (%w)", ErrUnavailable, a.cfg.QueueBytes, err))
		return t
	}
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.queue = append(a.queue, t)
	}
	a.mu.Unlock()
	if closed {
		a.answer(t, Outcome{}, fmt.Errorf("append: %w", ErrClosed))
		return t
	}
	a.signal()
	return t
}

// cost is about what a ticket holds of memory.
func (t *Ticket) cost() int64 {
	n := 256 + t.size
	for _, b := range t.entry.Batches {
		n += int64(len(b.Bytes))
	}
	for _, p := range t.entry.Puts {
		n += int64(len(p.Key) + len(p.Value))
	}
	return n + looseSize(t.loose)
}

func (a *appender) signal() {
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// run flushes until ctx ends, then what is left.
func (a *appender) run(ctx context.Context) error {
	// A commit is never cut off by ctx, which ends waits only. It ends when the drain's time is up.
	cut, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		a.signal()
		time.AfterFunc(a.cfg.DrainTimeout, cancel)
	})()

	failures := 0
	for a.wait() {
		a.lend()
		if !a.flush(cut) {
			failures = 0
			continue
		}
		if cut.Err() != nil {
			a.refuseAll()
			return nil
		}
		failures++
		a.cfg.Observer.Retried()
		pause(cut, failures)
	}
	return nil
}

// lend lets others run: as long as that brings more tickets, and until all are there that are due. Callers who were just answered
// have been woken and may have more to say; without it a flush of the first of them would go out before a flush of all the others. It gives
// up where they do not come back: after some turns that brought nothing, which cost nanoseconds each where nobody else wants to run, or
// when others have run for long.
func (a *appender) lend() {
	const turns, longest = 256, 200 * time.Microsecond
	due, start := a.due, time.Now()
	a.due = 0
	if start.Sub(a.answered) > longest {
		due = 0 // whoever had more to say at once has said it
	}
	for before, idle := -1, 0; idle < turns && time.Since(start) < longest; idle++ {
		runtime.Gosched()
		now := a.waiting()
		if now > before {
			before, idle = now, 0
		} else if now >= due {
			return
		}
	}
}

// waiting is how many tickets are in the queue.
func (a *appender) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

// wait returns when there is something to flush, and false when there never will be.
func (a *appender) wait() bool {
	for {
		a.mu.Lock()
		waiting, closed := len(a.queue), a.closed
		a.mu.Unlock()
		if waiting > 0 {
			return true
		}
		if closed {
			return false
		}
		<-a.more
	}
}

// pause waits before another try: 20 ms, twice as long each time up to a second, and a little at random so that
// brokers which lost the same store do not come back in step.
func pause(ctx context.Context, failures int) {
	const first, longest = 20 * time.Millisecond, time.Second
	d := min(first<<min(failures-1, 10), longest)
	select {
	case <-time.After(d/2 + rand.N(d)):
	case <-ctx.Done():
	}
}

// flush commits what is waiting and answers. It reports whether the store must be tried again after a pause:
// then the tickets wait in the queue, in their order, from where their callers may withdraw them.
func (a *appender) flush(ctx context.Context) (again bool) {
	a.gate.RLock()
	defer a.gate.RUnlock()
	if a.gate.shut {
		return true
	}
	f := a.gather()
	if len(f.slots) == 0 {
		if f.ask == nil {
			return false
		}
		return a.learn(ctx, *f.ask)
	}
	entries := f.entries()
	d := describe(entries)
	span, end := a.cfg.Tracer.Start(ctx, "flush", SpanInfo{Entries: d.Entries, Records: int(d.Records), Links: f.links})
	ends := a.ends(entries)
	start := time.Now()
	outcomes, err := a.store.Commit(span, entries)
	d.Took, d.Err = time.Since(start), err
	end(err)
	a.cfg.Observer.Flushed(d)
	if err != nil {
		a.cfg.Observer.StoreFailed("commit", err)
		return a.failed(f, err)
	}
	if len(outcomes) != len(entries) {
		panic(fmt.Sprintf("store gave %d outcomes for %d entries", len(outcomes), len(entries)))
	}
	a.checkEnds(ends, entries, outcomes)
	a.deliver(ctx, f, entries, outcomes)
	return false
}

// ends is where the partitions of a flush end before it is sent, as far as is known.
func (a *appender) ends(entries []Entry) map[Partition]Offset {
	var ps []Partition
	for _, e := range entries {
		for _, b := range e.Batches {
			ps = append(ps, b.Partition)
		}
	}
	_, known := a.tail.ends(ps)
	ends := make(map[Partition]Offset, len(ps))
	for i, p := range ps {
		ends[p] = known[i]
	}
	return ends
}

// checkEnds finds entries to which the store gave offsets that were taken when they were sent: it lost its end, and nobody knew. They are
// there now; but no offset is acknowledged twice.
func (a *appender) checkEnds(ends map[Partition]Offset, entries []Entry, outcomes []Outcome) {
	for i, e := range entries {
		if outcomes[i].Err != nil {
			continue
		}
		for k, b := range e.Batches {
			if at := outcomes[i].Base[k]; b.Records > 0 && at < ends[b.Partition] {
				outcomes[i].Err = fmt.Errorf("append: %w: partition %d ended at %d before, and the store gave out offset %d again: it lost its end",
					ErrUnsure, b.Partition, ends[b.Partition], at)
				a.doubt()
				break
			}
		}
	}
}

// startAnew lets go of what belongs to an incarnation of the store that is over. No flush is under way. Versions may be given again there, so
// that a check made before says nothing: who checks must read again.
func (a *appender) startAnew() {
	a.producers = newProducers()
	a.mu.Lock()
	var stale []*Ticket
	a.queue = slices.DeleteFunc(a.queue, func(t *Ticket) bool {
		if len(t.entry.Checks) > 0 {
			stale = append(stale, t)
		}
		return len(t.entry.Checks) > 0
	})
	a.mu.Unlock()
	for _, t := range stale {
		a.refuse(t, fmt.Errorf("append: %w: the store may have lost its end", ErrStale))
	}
}

// learn reads the state of the producer whose batch is at the head of the queue.
func (a *appender) learn(ctx context.Context, key producerKey) (again bool) {
	err := a.producers.load(ctx, a.store, key)
	if err == nil {
		return false
	}
	a.cfg.Observer.StoreFailed("list", err)
	if errors.Is(err, ErrUnavailable) {
		return true
	}
	a.mu.Lock()
	head := a.queue[0]
	a.queue = a.queue[1:]
	a.mu.Unlock()
	a.refuse(head, fmt.Errorf("append: read the producer's state: %w", err))
	return false
}

// gather takes tickets from the queue, in order, until a flush is full or the next ticket needs a flush of its own.
func (a *appender) gather() *flush {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := newFlush(a.cfg.FlushBytes, a.sealing)
	taken := 0
	for _, t := range a.queue {
		if f.full() {
			break
		}
		if !t.take() {
			taken++ // its caller went away and has its answer
			a.room.Release(t.size)
			continue
		}
		if t.build != nil && !t.finish() {
			taken++
			a.answer(t, Outcome{}, nil) // there is nothing to commit
			continue
		}
		fits, out, err := f.add(t, a.producers)
		if !fits {
			t.putBack()
			break
		}
		taken++
		if out.Duplicate {
			b := t.entry.Batches[0]
			a.tail.reach(b.Partition, out.Base[0]+Offset(b.Records)) // perhaps another process appended it
		}
		if out.Duplicate || err != nil {
			a.answer(t, out, err) // there is nothing to commit for it
		}
	}
	clear(a.queue[:taken])
	a.queue = a.queue[taken:]
	return f
}

// failed handles a flush that the store refused as a whole.
func (a *appender) failed(f *flush, err error) (again bool) {
	if errors.Is(err, ErrRewound) {
		a.doubt()
	}
	if errors.Is(err, ErrUnavailable) {
		a.requeue(f.tickets())
		return true
	}
	a.log.Error("flush failed", "entries", len(f.slots), "err", err)
	for _, s := range f.slots {
		if s.producer != nil {
			a.producers.forget(s.producer.key) // what the store holds of it must be read anew
		}
	}
	for _, t := range f.tickets() {
		a.answer(t, Outcome{}, fmt.Errorf("append: %w", err))
	}
	return false
}

// requeue puts tickets back at the head of the queue.
func (a *appender) requeue(tickets []*Ticket) {
	for _, t := range tickets {
		t.putBack()
	}
	a.mu.Lock()
	a.queue = append(tickets, a.queue...)
	a.mu.Unlock()
}

// deliver shows what became durable to readers first, and then answers the callers: who has an ack can read it.
func (a *appender) deliver(ctx context.Context, f *flush, entries []Entry, outcomes []Outcome) {
	var placed []Placed
	for i, out := range outcomes {
		if out.Err == nil {
			for k, b := range entries[i].Batches {
				placed = append(placed, Placed{Base: out.Base[k], Batch: b})
			}
		}
	}
	a.tail.append(placed)

	a.due, a.answered = a.waiting(), time.Now()
	var again []*Ticket
	for i, out := range outcomes {
		s := f.slots[i]
		if errors.Is(out.Err, ErrUnavailable) {
			a.cfg.Observer.StoreFailed("commit", out.Err) // it refused records for want of space
		}
		if s.producer != nil && out.Err == nil {
			a.producers.moved(s.producer, out.Base)
		}
		if s.producer != nil && errors.Is(out.Err, ErrStale) {
			// Another broker heard of this producer. Learn what it knows and judge the batches anew.
			if err := a.producers.load(ctx, a.store, s.producer.key); err != nil {
				out.Err = fmt.Errorf("read the producer's state: %w", err)
			} else {
				again = append(again, s.tickets()...)
				continue
			}
		}
		a.due += len(s.seats)
		for _, seat := range s.seats {
			a.answer(seat.ticket, seat.outcome(out), out.Err)
		}
	}
	if len(again) > 0 {
		a.requeue(again)
	}
}

func (a *appender) refuseAll() {
	a.mu.Lock()
	queue := a.queue
	a.queue = nil
	a.mu.Unlock()
	for _, t := range queue {
		a.refuse(t, fmt.Errorf("append: %w: stopping, and the store did not answer within %v", ErrClosed, a.cfg.DrainTimeout))
	}
}

// refuse answers a ticket that was taken from the queue, unless its caller went away.
func (a *appender) refuse(t *Ticket, err error) {
	if t.take() {
		a.answer(t, Outcome{}, err)
	} else {
		a.room.Release(t.size)
	}
}

func (a *appender) answer(t *Ticket, out Outcome, err error) {
	a.room.Release(t.size)
	t.resolve(out, err)
}
