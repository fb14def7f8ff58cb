package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-log/weir/internal/closing"
)

// appender commits entries in groups: callers queue tickets, and one goroutine commits all queued
// tickets in one store call. While a commit is in flight new tickets queue up, so a busy log
// batches by itself and an idle log commits immediately. There is no timer, except for topics whose
// records linger (linger.go).
type appender struct {
	store         Store
	tail          *tail
	gate          *gate
	suspectRewind func()         // asks the follower to check whether the store was rewound
	epoch         func() Version // returns the version of the key EpochKey in the log's incarnation: its newest leader epoch, plus one (incarnation.go)
	flushBytes    func() int
	cfg           Config
	log           *slog.Logger
	sealing       func(Partition) sealing
	lingering     func(Partition) (lingering, bool) // how the partition's topic lingers; false: records of the partition do not wait
	producers     *producers                        // owned by run
	alone         int                               // number of tickets at the head of the queue that are committed one by one, because the store refused the flush that held them; owned by run
	expected      int                               // number of tickets for which yieldForMore waits: those in the queue when callers were last answered, and one for each of these callers; owned by run
	expectedAt    time.Time                         // when expected was set; owned by run

	queueBudget  *semaphore.Weighted // bytes of queued tickets
	upkeepBudget *semaphore.Weighted // bytes of queued heartbeats and leases (Log.SubmitUpkeep), which do not count in queueBudget
	wake         chan struct{}       // has a value after a ticket was queued or the queue was closed
	commits      atomic.Uint64       // how many commits the store has answered
	failing      atomic.Bool         // the last flush must be tried again: the store was unavailable, or the gate was shut

	mu        sync.Mutex // guards the fields below
	queue     []*Ticket
	upkeep    []*Ticket // goes before queue
	flushAt   schedule  // when queue is to be flushed
	most      int       // flushBytes at the last flush
	submitted uint64    // how many tickets were queued so far
	hurried   uint64    // tickets up to this number do not wait
	closed    bool
	prompt    bool // no ticket lingers any more (endLinger)

	readOnly bool // every ticket is refused
}

func newAppender(store Store, tail *tail, sealing func(Partition) sealing, lingering func(Partition) (lingering, bool), gate *gate, suspectRewind func(), epoch func() Version, flushBytes func() int, cfg Config) *appender {
	return &appender{
		store: store, tail: tail, sealing: sealing, lingering: lingering, gate: gate, suspectRewind: suspectRewind, epoch: epoch, flushBytes: flushBytes, most: flushBytes(), cfg: cfg, log: cfg.Logger,
		producers:    newProducers(),
		queueBudget:  semaphore.NewWeighted(cfg.limits.QueueBytes),
		upkeepBudget: semaphore.NewWeighted(upkeepBytes),
		wake:         make(chan struct{}, 1),
	}
}

func (a *appender) submit(ctx context.Context, t *Ticket) *Ticket {
	t.done = make(chan struct{})
	t.stays = t.entry.Stays
	t.trace = a.cfg.Tracer.Inject(ctx)
	if a.readOnly {
		t.resolve(Outcome{}, fmt.Errorf("append: %w", ErrReadOnly))
		return t
	}
	t.budget, t.size = a.queueBudget, min(t.cost(), a.cfg.limits.QueueBytes)
	if t.upkeep {
		t.budget, t.size = a.upkeepBudget, min(t.cost(), upkeepBytes)
	}
	t.commits, t.a = a.commits.Load(), a
	if !t.budget.TryAcquire(t.size) {
		a.flushNow() // tickets that linger must not keep this one waiting
		if err := t.budget.Acquire(ctx, t.size); err != nil {
			t.resolve(Outcome{}, fmt.Errorf("append: %w: gave up while the queue of entries for the store was full; the limit is %d bytes (%w)", t.late(), a.cfg.limits.QueueBytes, err))
			return t
		}
	}
	a.linger(t)
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.submitted++
		t.number = a.submitted
		if t.upkeep {
			a.upkeep = append(a.upkeep, t)
		} else {
			a.queue = append(a.queue, t)
		}
		a.flushAt.add(t, int64(a.most))
	}
	a.mu.Unlock()
	if closed {
		a.answer(t, Outcome{}, fmt.Errorf("append: %w", ErrClosed))
		return t
	}
	a.signal()
	return t
}

// partCost is what each batch and each put costs in addition to its bytes. It is a number of bytes,
// and stands for memory and for about 10 µs of work in the store.
const partCost = 1 << 10

// upkeepBytes is the size of upkeepBudget: some thousand leases.
const upkeepBytes = 4 << 20

// checkCost is what each check costs in addition to its bytes: less than partCost, because a check
// reads a key and changes nothing.
const checkCost = partCost / 4

// cost estimates what a ticket costs in memory and in the store's work, in bytes.
func (t *Ticket) cost() int64 { return 256 + t.size + t.entry.cost() }

// cost estimates what an entry costs in memory and in the store's work, in bytes.
func (e *Entry) cost() int64 {
	n := partCost*int64(len(e.Batches)+len(e.Puts)) + checkCost*int64(len(e.Checks))
	for _, b := range e.Batches {
		n += int64(len(b.Bytes))
	}
	for _, p := range e.Puts {
		n += int64(len(p.Key) + len(p.Value))
	}
	for _, c := range e.Checks {
		n += int64(len(c.Key))
	}
	return n
}

func (a *appender) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run flushes until ctx ends, and then drains the queue for at most DrainTimeout.
func (a *appender) run(ctx context.Context) error {
	// The end of ctx does not cancel a commit in flight. The end of cut does.
	cut, cancel := closing.Outlive(ctx, a.cfg.DrainTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		a.signal()
	})()

	failures := 0
	for a.wait() {
		a.awaitStore(cut)
		a.yieldForMore()
		retry := a.flush(cut)
		a.failing.Store(retry)
		if !retry {
			failures = 0
			continue
		}
		if cut.Err() != nil {
			a.refuseAll(fmt.Errorf("append: %w: the log stopped before the entry was sent, because the store did not answer within %v", ErrClosed, a.cfg.DrainTimeout))
			return nil
		}
		failures++
		a.cfg.Observer.Retried()
		Pause(cut, failures)
	}
	return nil
}

// awaitStore waits until the store lets a commit begin: what is submitted meanwhile goes with it.
func (a *appender) awaitStore(ctx context.Context) {
	store, is := As[Costly](a.store)
	if !is {
		return
	}
	if wait := time.Until(store.NextCommit()); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// yieldForMore yields the processor, at most 200 µs, so that callers answered by the last flush can
// join this one. It ends earlier when the expected tickets are queued and one more yield brings no
// ticket, or after 256 yields in a row that bring none.
func (a *appender) yieldForMore() {
	const yields, longest = 256, 200 * time.Microsecond
	expected, start := a.expected, time.Now()
	a.expected = 0
	if start.Sub(a.expectedAt) > longest {
		expected = 0 // a caller that submits again immediately has done so by now
	}
	for before, idle := -1, 0; idle < yields && time.Since(start) < longest; idle++ {
		runtime.Gosched()
		now := a.queueLength()
		if now > before {
			before, idle = now, 0
		} else if now >= expected {
			return
		}
	}
}

func (a *appender) queueLength() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue) + len(a.upkeep)
}

// wait blocks until the queue is to be flushed. It returns false once the queue is closed and
// empty.
func (a *appender) wait() bool {
	for {
		a.mu.Lock()
		waiting, closed, prompt, at := len(a.queue)+len(a.upkeep), a.closed, a.closed || a.prompt, a.flushAt.at
		a.mu.Unlock()
		switch {
		case waiting > 0 && (prompt || !at.After(time.Now())):
			return true
		case waiting > 0:
			select {
			case <-a.wake:
			case <-time.After(time.Until(at)):
			}
		case closed:
			return false
		default:
			<-a.wake
		}
	}
}

// flushNow makes all queued tickets due at once.
func (a *appender) flushNow() {
	a.mu.Lock()
	a.hurried = a.submitted
	a.flushAt = schedule{begun: len(a.queue)+len(a.upkeep) > 0}
	a.mu.Unlock()
	a.signal()
}

// endLinger makes all queued tickets due at once, and lets none linger from now on.
func (a *appender) endLinger() {
	a.mu.Lock()
	a.prompt = true
	a.mu.Unlock()
	a.signal()
}

// flush commits the queued tickets and answers them. It returns true if run must try again later:
// the store was unavailable, or the gate is shut. The tickets are then in the queue, in order,
// where callers can withdraw them; but if a newer weir has upgraded the store, they were refused.
func (a *appender) flush(ctx context.Context) (retry bool) {
	a.gate.RLock()
	defer a.gate.RUnlock()
	if a.gate.shut {
		if err := a.gate.upgraded; err != nil {
			a.refuseAll(fmt.Errorf("append: %w", err))
		}
		return true
	}
	f := a.gather()
	if len(f.pending) == 0 {
		return f.loadFirst && a.loadProducers(ctx)
	}
	entries := f.entries()
	d := describe(entries)
	f.span.Entries, f.span.Records = d.Entries, int(d.Records)
	span, end := a.cfg.Tracer.Start(ctx, "flush", f.span)
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
	a.commits.Add(1)
	if len(outcomes) != len(entries) {
		panic(fmt.Sprintf("store gave %d outcomes for %d entries", len(outcomes), len(entries)))
	}
	a.refuseReusedOffsets(ends, entries, outcomes)
	a.deliver(ctx, f, entries, outcomes)
	return false
}

// ends returns the next offset of each partition in the flush, as this process knows it before the
// commit.
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

// refuseReusedOffsets answers ErrUnsure for entries whose offsets were already in use before the
// commit: the store was rewound, and nobody had noticed. The records are stored, but no offset is
// acknowledged twice.
func (a *appender) refuseReusedOffsets(ends map[Partition]Offset, entries []Entry, outcomes []Outcome) {
	for i, e := range entries {
		if outcomes[i].Err != nil {
			continue
		}
		for k, b := range e.Batches {
			if at := outcomes[i].Base[k]; b.Records > 0 && at < ends[b.Partition] {
				outcomes[i].Err = fmt.Errorf("append: %w: the store assigned offset %d of partition %d, which already ended at %d: the store was rewound (restored from a backup, or failed over to a standby that lacked commits)",
					ErrUnsure, at, b.Partition, ends[b.Partition])
				a.suspectRewind()
				break
			}
		}
	}
}

// resetForIncarnation drops the state of the previous incarnation; the caller holds the gate, so no
// flush is in flight. Queued entries with checks fail with ErrStale: a version from the previous
// incarnation may now mean another value.
func (a *appender) resetForIncarnation() {
	a.producers = newProducers()
	a.mu.Lock()
	a.takeUpkeep()
	var stale []*Ticket
	a.queue = slices.DeleteFunc(a.queue, func(t *Ticket) bool {
		if len(t.entry.Checks) > 0 {
			stale = append(stale, t)
		}
		return len(t.entry.Checks) > 0
	})
	a.mu.Unlock()
	for _, t := range stale {
		a.refuse(t, fmt.Errorf("append: %w: the store may have been rewound", ErrStale))
	}
}

// loadProducers reads from the store the state of the producer whose batch is first in the queue,
// and concurrently the states of other queued producers whose states must be read as well: a client
// with many producer ids must not make the flushes wait once for each id.
func (a *appender) loadProducers(ctx context.Context) (retry bool) {
	keys, asOf := a.unjudged()
	if len(keys) == 0 {
		return false // the caller has withdrawn the ticket whose producer's state was missing
	}
	err := a.producers.load(ctx, a.store, asOf, keys)[0] // others that failed are loaded again when their turn comes
	if err == nil {
		return false
	}
	a.cfg.Observer.StoreFailed("list", err)
	if errors.Is(err, ErrRewound) {
		a.suspectRewind()
	}
	_, sharded := As[Sharded](a.store)
	if errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUpgraded) && (!sharded || errors.Is(err, ErrRewound)) {
		return true
	}
	// On a store made of shards the tickets after this one may be for shards that answer.
	a.mu.Lock()
	head := a.queue[0]
	a.queue = a.queue[1:]
	a.mu.Unlock()
	a.refuse(head, fmt.Errorf("append: read the producer's state: %w", err))
	return false
}

// unjudged lists, in queue order, the producers whose queued batches can be checked (judge) only
// after their states are read from the store. asOf is the number of the newest ticket.
func (a *appender) unjudged() (keys []producerKey, asOf uint64) {
	const most = 16 * producersLoaded // tickets to look at
	a.mu.Lock()
	defer a.mu.Unlock()
	states := make(map[producerKey]*advance) // as they are after the tickets so far; nil: to be loaded
	for _, t := range a.queue[:min(len(a.queue), most)] {
		b, is := t.shared.(*producedBatch)
		if len(keys) == producersLoaded {
			break
		}
		if !is {
			continue
		}
		key := b.key()
		state, begun := states[key]
		if begun && state == nil {
			continue
		}
		if !begun {
			state = a.producers.begin(key)
			states[key] = state
		}
		if _, err := state.judge(*b.Producer, t.number); errors.Is(err, errAskStore) {
			keys, states[key] = append(keys, key), nil
		}
	}
	return keys, a.submitted
}

// gather takes tickets from the queue, in order, until the flush is full or the next ticket must
// wait for the next flush (see flush.add). It calls Ticket.build, of tickets that have one, without
// the lock, so that callers can submit meanwhile: they only append to the queue.
func (a *appender) gather() *flush {
	most := a.flushBytes()
	a.mu.Lock()
	a.most = most
	a.takeUpkeep()
	queue := a.queue
	a.mu.Unlock()
	f := newFlush(most, a.sealing, a.epoch())
	taken := 0
	for _, t := range queue {
		if f.full() || a.alone > taken && len(f.pending) > 0 {
			break
		}
		if !t.take() {
			taken++ // its caller has withdrawn it
			t.budget.Release(t.size)
			continue
		}
		if t.build != nil {
			if ok, err := t.finish(); err != nil || !ok {
				taken++
				f.budget -= int(t.size) // to build it took time, though there is nothing to commit
				a.answer(t, Outcome{}, err)
				continue
			}
		}
		fits, out, err := f.add(t, a.producers)
		if !fits {
			t.putBack()
			break
		}
		taken++
		if out.Duplicate {
			b := t.entry.Batches[0]
			a.tail.raiseEnd(b.Partition, out.Base[0]+Offset(b.Records)) // another process may have appended it, so the tail may not know of it
		}
		if out.Duplicate || err != nil {
			a.answer(t, out, err) // there is nothing to commit for it
		}
	}
	a.alone = max(0, a.alone-taken)
	a.mu.Lock()
	clear(a.queue[:taken])
	a.queue = a.queue[taken:]
	left := len(queue) - taken
	a.flushAt = schedule{begun: left > 0 || len(a.upkeep) > 0 || len(a.queue) > 0 && a.queue[0].number <= a.hurried} // what did not fit goes at once
	for _, t := range a.queue[left:] {                                                                               // came meanwhile
		a.flushAt.add(t, int64(most))
	}
	a.mu.Unlock()
	return f
}

// takeUpkeep puts the tickets of SubmitUpkeep before all others. The caller holds mu.
func (a *appender) takeUpkeep() {
	if len(a.upkeep) == 0 {
		return
	}
	if a.alone > 0 {
		a.alone += len(a.upkeep)
	}
	a.queue = append(a.upkeep, a.queue...)
	a.upkeep = nil
}

// failed handles an error of Commit itself, which concerns every entry of the flush.
func (a *appender) failed(f *flush, err error) (retry bool) {
	if errors.Is(err, ErrRewound) {
		a.suspectRewind()
	}
	upgraded := errors.Is(err, ErrUpgraded) // trying again does not help; the follower logs it
	if errors.Is(err, ErrUnavailable) && !upgraded {
		a.requeue(f.tickets())
		return true
	}
	if !upgraded {
		a.log.Error("flush failed", "entries", len(f.pending), "err", err)
	}
	for _, s := range f.pending {
		if s.producer != nil {
			a.producers.forget(s.producer.key) // its state is read from the store before its next batch
		}
	}
	tickets := f.tickets()
	if len(tickets) > 1 && !upgraded && !errors.Is(err, ErrUnsure) && !errors.Is(err, ErrRewound) {
		a.alone = len(tickets) // one of them may be the cause, and must not fail the other tickets
		a.requeue(tickets)
		return false
	}
	for _, t := range tickets {
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
	a.flushAt = schedule{begun: true} // at once
	a.mu.Unlock()
}

// deliver adds durable batches to the tail before it answers the callers: a caller that has its
// acknowledgement can read the record.
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

	a.expected, a.expectedAt = a.queueLength(), time.Now()
	var stale []*pendingEntry
	for i, out := range outcomes {
		s := f.pending[i]
		if errors.Is(out.Err, ErrUnavailable) && !errors.Is(out.Err, ErrHeld) {
			a.cfg.Observer.StoreFailed("commit", out.Err) // ErrNoSpace, or a shard that does not answer: counted here, because the flush as a whole succeeded
		}
		if errors.Is(out.Err, ErrRewound) {
			a.suspectRewind() // one shard was rewound; the other shards have answered
		}
		if s.producer != nil && out.Err == nil {
			a.producers.moved(s.producer, out.Base)
		}
		if s.producer != nil && errors.Is(out.Err, ErrUnsure) {
			a.producers.forget(s.producer.key) // its state is read from the store before its next batch
		}
		if s.producer != nil && errors.Is(out.Err, ErrStale) {
			stale = append(stale, s)
			continue
		}
		a.expected += len(s.shares)
		for _, share := range s.shares {
			a.answer(share.ticket, share.outcome(out), out.Err)
		}
	}
	if len(stale) > 0 {
		a.judgeAgain(ctx, stale)
	}
}

// judgeAgain puts stale entries back into the queue, to be judged again: another broker has
// appended batches of the same producers. It first reads the states of the first producers from the
// store, producersLoaded at most, and forgets those of the rest, which are read when their turn
// comes.
func (a *appender) judgeAgain(ctx context.Context, stale []*pendingEntry) {
	now, later := stale[:min(len(stale), producersLoaded)], stale[min(len(stale), producersLoaded):]
	keys := make([]producerKey, len(now))
	for i, s := range now {
		keys[i] = s.producer.key
	}
	a.mu.Lock()
	asOf := a.submitted
	a.mu.Unlock()
	var again []*Ticket
	for i, err := range a.producers.load(ctx, a.store, asOf, keys) {
		if err == nil {
			again = append(again, now[i].tickets()...)
			continue
		}
		for _, t := range now[i].tickets() {
			a.answer(t, Outcome{}, fmt.Errorf("read the producer's state: %w", err))
		}
	}
	for _, s := range later {
		a.producers.forget(s.producer.key)
		again = append(again, s.tickets()...)
	}
	if len(again) > 0 {
		a.requeue(again)
	}
}

func (a *appender) refuseAll(why error) {
	a.mu.Lock()
	a.takeUpkeep()
	queue := a.queue
	a.queue = nil
	a.mu.Unlock()
	for _, t := range queue {
		a.refuse(t, why)
	}
}

// refuse answers a ticket that was removed from the queue, unless its caller has withdrawn it.
func (a *appender) refuse(t *Ticket, err error) {
	if t.take() {
		a.answer(t, Outcome{}, err)
	} else {
		t.budget.Release(t.size)
	}
}

func (a *appender) answer(t *Ticket, out Outcome, err error) {
	t.budget.Release(t.size)
	t.resolve(out, err)
}
