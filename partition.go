package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// partition is one partition of a consumer. One goroutine reads it, calls the handler, and retries
// failed events:
//
//	gather ──► call ──► judge ──► handled
//	   ▲                  │
//	   └───── pause ◄─────┴─────► dead letter
type partition struct {
	c     *Consumer
	name  TopicPartition
	key   group.TopicPartition
	since int32 // the group's generation that assigned it to this consumer

	member string // the member that it was assigned to: a consumer that was evicted and joins again is a new member

	drain context.CancelFunc      // prevents further calls
	cut   context.CancelCauseFunc // prevents further calls, and ends the context of the running call
	ended chan struct{}           // closed when the goroutine has ended

	// Owned by run.
	reader  reader
	seen    int             // the number of seeks that run has applied
	trouble trouble         // the failures of the next event
	alone   eventlog.Offset // events below this offset are passed to the handler one by one, and tried only once
	unsure  bool            // dead letters may have been committed by an attempt with unknown outcome

	reaction []StreamPart // what the last call of React returned, to be appended

	mu        sync.Mutex      // guards what follows
	handled   eventlog.Offset // everything below was handled
	epoch     int32           // the leader epoch in which the handled events were read
	committed eventlog.Offset // the group's committed offset, as last seen
	claimed   eventlog.Offset // the offset that the handler's transactions committed, unless they were rolled back (unproven); used only if above committed
	sought    bool            // there was a seek, or the store was rewound: commit handled, also if it is below committed
	informed  bool            // the committer knows that there is something to commit
	seeks     int             // how many seeks were requested
	lost      bool            // the group took it from this consumer
	paused    bool
	halted    error              // why it has halted, until Resume; nil: it has not
	wake      context.CancelFunc // ends run's wait
	calling   call               // the running call of the handler
	inTx      eventlog.Offset    // up to where the running or last call committed in its own transaction; 0: it did not commit
	astray    bool               // the call's commit found that another consumer had committed first
	notOurs   bool               // the call's commit was refused because the partition is not assigned to this consumer
	behind    bool               // the call's commit found the group's offset below handled; it has been repaired since
}

// call is one call of the handler.
type call struct {
	first eventlog.Offset
	began time.Time // zero: no call is running
}

// trouble counts the failures of an event.
type trouble struct {
	offset   eventlog.Offset
	attempts int
	first    time.Time
}

// errNotNow: the call was not made, because the partition was paused, got a seek, was lost, or is
// being closed.
var errNotNow = errors.New("not now")

// run works until draining ends. Handlers get ctx.
func (p *partition) run(ctx, draining context.Context) {
	defer close(p.ended)
	var wait context.Context
	paused := false
	for draining.Err() == nil {
		if wait == nil || wait.Err() != nil {
			wait, paused = p.renew(draining)
		}
		if paused {
			<-wait.Done()
			continue
		}
		if events := p.gather(ctx, wait); len(events) > 0 {
			err := p.call(ctx, wait, events)
			if err == nil && len(p.reaction) > 0 {
				err = p.appendReaction(ctx, wait, events[0])
			}
			p.judge(ctx, wait, events, err)
		}
	}
}

// renew applies the requests to the partition (pause, seek, …). The context wait ends at the next
// request.
func (p *partition) renew(draining context.Context) (wait context.Context, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake != nil {
		p.wake() // releases the previous context
	}
	wait, p.wake = context.WithCancel(draining)
	if p.seen != p.seeks {
		p.seen = p.seeks
		p.reader.seek(p.handled, p.epoch)
		p.trouble, p.alone = trouble{}, 0
	}
	return wait, p.paused || p.halted != nil
}

// gather waits for the next events for the handler: MinBatch of them, or those that are there after
// MaxWait. It returns none if wait has ended, or if nothing could be read.
func (p *partition) gather(ctx, wait context.Context) []Event {
	least, most := p.c.sub.MinBatch, p.c.sub.MaxBatch
	var until time.Time
	for wait.Err() == nil {
		if outside := p.reader.dropLost(); outside != nil {
			p.goOn(outside)
		}
		queue := p.reader.queue
		if len(queue) > 0 && eventlog.Offset(queue[0].Offset) < p.alone {
			least, most = 1, 1
		}
		if len(queue) >= least {
			return queue[:min(len(queue), most)]
		}
		patience := readWait
		if len(queue) > 0 {
			if until.IsZero() {
				until = time.Now().Add(p.c.sub.MaxWait)
			}
			if patience = time.Until(until); patience <= 0 {
				return queue
			}
		}
		if !p.read(ctx, wait, patience) {
			queue = p.reader.queue
			return queue[:min(len(queue), most)]
		}
	}
	return nil
}

// read waits for more events. It returns false if there are no more for now.
func (p *partition) read(ctx, wait context.Context, patience time.Duration) bool {
	outside, err := p.reader.more(wait, patience)
	var broken *brokenError
	switch {
	case outside != nil && p.c.sub.whole && outside.Asked < outside.First:
		p.reader.next = outside.Asked // the next read asks for it again
		if len(p.reader.queue) > 0 {
			return false // the events before the gap come first
		}
		p.lack(outside)
	case outside != nil:
		p.goOn(outside)
	case wait.Err() != nil:
		return false
	case errors.As(err, &broken):
		if len(p.reader.queue) > 0 {
			return false // the events before the broken batch come first
		}
		p.giveUp(ctx, wait, p.failure(broken.event(p), broken, 1), broken.next)
	case err != nil:
		p.c.logger.Warn("a partition cannot be read; trying again", p.attrs("err", err)...)
		sleep(wait, readPause)
		return false
	}
	if len(p.reader.queue) == 0 {
		p.advance(p.reader.next) // past offsets that hold no events
	}
	return true
}

// goOn notes that the reader continues at another offset, because events are not there any more.
func (p *partition) goOn(outside *eventlog.RangeError) {
	p.c.logger.Warn("events do not exist any more; continuing with those that exist", p.attrs("asked", outside.Asked, "first", outside.First, "next", outside.Next)...)
	if outside.Asked > outside.Next {
		p.trouble, p.alone = trouble{}, 0 // they belong to events that are lost
		p.goBack(outside.Next)
	}
}

// lack halts the partition, because events that its handler must have are not there any more.
func (p *partition) lack(outside *eventlog.RangeError) {
	err := fmt.Errorf("%w: topic %q no longer has the offsets [%d, %d) of partition %d: they were deleted, by the topic's retention or by a request",
		ErrEventsMissing, p.name.Topic, outside.Asked, outside.First, p.name.Partition)
	p.c.logger.Error("partition halted: its handler needs events that were deleted; to continue without them, set Projection.SkipMissing",
		p.attrs("asked", outside.Asked, "first", outside.First)...)
	p.change(func() {
		if p.seen == p.seeks { // otherwise there was a seek meanwhile
			p.halted = err
		}
	})
}

// readPause is the pause between two attempts to read a partition.
const readPause = time.Second

// call waits until one more call may run (Concurrency), and calls the handler.
func (p *partition) call(ctx, wait context.Context, events []Event) (err error) {
	if p.c.log.opts.Tracer != nil {
		var end func(error)
		ctx, end = p.c.log.opts.Tracer.Start(ctx, "deliver", p.span(events))
		defer func() { end(err) }()
	}
	if !p.c.enter(wait) {
		return errNotNow
	}
	defer p.c.leave()
	if !p.begin(wait, events) {
		return errNotNow
	}
	defer p.finish()
	return p.handle(ctx, events)
}

// handle calls the handler, and turns a panic into an error.
func (p *partition) handle(ctx context.Context, events []Event) (err error) {
	if p.c.log.opts.Tracer != nil {
		var end func(error)
		ctx, end = p.c.log.opts.Tracer.Start(ctx, "handle", eventlog.SpanInfo{Topic: p.name.Topic, Group: p.c.sub.Group, Records: len(events)})
		defer func() { end(err) }()
	}
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if err = panicked; events[0].Attempt == 1 {
				p.c.logger.Error("handler panicked", p.attrs("offset", events[0].Offset, "panic", v, "stack", string(panicked.Stack))...)
			}
		}
	}()
	if p.c.sub.react != nil {
		p.reaction, err = p.c.sub.react(ctx, events[0])
		return err
	}
	if p.c.sub.Handler != nil {
		return p.c.sub.Handler(ctx, events[0])
	}
	return p.c.sub.BatchHandler(ctx, slices.Clone(events)) // a copy: the handler may sort it and then fail
}

// span describes a delivery, and the spans that published its events.
func (p *partition) span(events []Event) eventlog.SpanInfo {
	return spanOf(eventlog.SpanInfo{Topic: p.name.Topic, Group: p.c.sub.Group}, events)
}

// spanOf adds events to the description of a span: their number, and links to the spans in their
// headers.
func spanOf(info eventlog.SpanInfo, events []Event) eventlog.SpanInfo {
	info.Records = len(events)
	for i := range events {
		info.Link(events[i].Headers)
	}
	return info
}

// begin notes that a call begins. It returns false if there was another request meanwhile, such as
// a pause.
func (p *partition) begin(wait context.Context, events []Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait.Err() != nil {
		return false
	}
	for i := range events {
		events[i].Attempt++
	}
	p.calling = call{first: eventlog.Offset(events[0].Offset), began: time.Now()}
	p.inTx, p.astray, p.behind, p.notOurs = 0, false, false, false
	return true
}

func (p *partition) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calling = call{}
}

// judge decides, by the result of a call, what happens to its events.
func (p *partition) judge(ctx, wait context.Context, events []Event, err error) {
	switch {
	case err == nil && !p.isAstray(): // if astray, another consumer has handled the events: nil only says that the handler accepts that
		p.took(events)
		return
	case errors.Is(err, errNotNow), ctx.Err() != nil, p.reconcile(ctx, wait), p.waitsForGroup(wait): // the result does not matter, or is known already
		return
	}
	index, named := failedIndex(err, len(events))
	p.took(events[:index])
	e := events[index]
	at := eventlog.Offset(e.Offset)
	if p.trouble.offset != at || p.trouble.attempts == 0 {
		p.trouble = trouble{offset: at, first: time.Now()}
	}
	p.trouble.attempts++
	switch last := isPermanent(err) || at < p.alone || p.c.sub.Retry.spent(p.trouble.attempts); {
	case !last:
		pause := p.c.sub.Retry.pause(p.trouble.attempts)
		p.c.logger.Warn("handler failed; trying again", p.attrs("offset", at, "attempt", p.trouble.attempts, "pause", pause, "err", err)...)
		sleep(wait, pause)
	case !named && len(events) > 1:
		p.c.logger.Warn("handler failed; trying each event of the batch on its own", p.attrs("offset", at, "events", len(events), "err", err)...)
		p.alone = eventlog.Offset(events[len(events)-1].Offset) + 1
	default:
		p.giveUp(ctx, wait, p.failure(e, err, e.Attempt), at+1)
	}
}

func (p *partition) failure(e Event, err error, attempts int) Failure {
	first := p.trouble.first
	if first.IsZero() {
		first = time.Now()
	}
	return Failure{Event: e, Err: err, Attempts: attempts, FirstFailed: first, Group: p.c.sub.Group, Consumer: p.c.sub.Name}
}

// giveUp publishes dead letters for an event that failed for good, and continues at next. If they
// are refused for good the partition halts.
func (p *partition) giveUp(ctx, wait context.Context, f Failure, next eventlog.Offset) {
	letters, err := p.c.deadLetters(ctx, f)
	if err != nil {
		p.halt(f, err)
		return
	}
	mark := fmt.Sprintf("dead letter of %d, %s", f.Event.Offset, rand.Text())
	for attempt := 1; len(letters) > 0; attempt++ {
		err := p.bury(ctx, next, mark, letters)
		if err == nil {
			p.unsure = false
			break
		}
		patience := wait
		p.unsure = p.unsure || errors.Is(err, ErrUnsure) // the result of a later attempt does not resolve the outcome of this one
		var invalid *InvalidError
		switch {
		case errors.Is(err, errNotNow):
			return
		case p.unsure:
			patience = ctx // otherwise the event might be delivered again although its dead letter was published
		case errors.Is(err, ErrTooLarge) || errors.As(err, &invalid): // it is refused for good
			p.halt(f, fmt.Errorf("publish the dead letter: %w", err))
			return
		}
		p.c.logger.Error("a dead letter cannot be published; trying again", p.attrs("offset", f.Event.Offset, "err", err, "reason", f.Err)...)
		if !sleep(patience, deadLetterRetry.pause(attempt)) {
			return // the event comes again
		}
	}
	does := "event given up; it was published as a dead letter"
	if len(letters) == 0 {
		does = "event given up; no dead letter was published"
	}
	p.c.logger.Error(does, p.attrs("offset", f.Event.Offset, "attempts", f.Attempts, "reason", f.Err)...)
	p.trouble = trouble{}
	if len(p.reader.queue) > 0 {
		p.reader.take(1)
	}
	p.reader.next = max(p.reader.next, next)
	p.advance(next)
}

// deadLetterRetry is the pauses between attempts to publish dead letters.
var deadLetterRetry = Retry{First: pauseFirst, Max: 10 * time.Second}

// halt stops the partition at an event.
func (p *partition) halt(f Failure, err error) {
	p.c.logger.Error("partition halted: Resume tries the event again", p.attrs("offset", f.Event.Offset, "attempts", f.Attempts, "reason", f.Err, "err", err)...)
	p.trouble = trouble{}
	p.change(func() {
		if p.seen == p.seeks { // otherwise there was a seek meanwhile
			p.halted = err
		}
	})
}

// took notes that events were handled.
func (p *partition) took(events []Event) {
	if n := len(events); n > 0 {
		p.reader.take(n)
		p.trouble = trouble{}
		p.advance(eventlog.Offset(events[n-1].Offset) + 1)
	}
}

// advance raises the handled offset, unless there was a seek meanwhile. Only run calls it.
func (p *partition) advance(to eventlog.Offset) {
	p.mu.Lock()
	wake := false
	if p.seen == p.seeks && to > p.handled {
		p.handled, p.epoch = to, p.reader.epoch
		p.claimed = max(p.claimed, min(p.inTx, to))
		wake = p.handled != p.committed && !p.informed
		p.informed = p.informed || wake
	}
	p.mu.Unlock()
	if wake {
		p.c.wakeCommits()
	}
}

// goBack lowers the handled offset to the end of a store that was rewound, and makes sure that it
// gets committed, although it is below the committed offset.
func (p *partition) goBack(to eventlog.Offset) {
	p.mu.Lock()
	if p.seen == p.seeks { // otherwise there was a seek meanwhile
		p.sought = p.sought || p.handled > to
		p.handled, p.epoch, p.claimed = min(p.handled, to), p.reader.epoch, 0
	}
	p.mu.Unlock()
	p.c.wakeCommits()
}

// change calls f with mu locked, and wakes run.
func (p *partition) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.wake != nil {
		p.wake()
	}
}

// pause pauses the partition, or resumes it.
func (p *partition) pause(on bool) {
	p.change(func() {
		p.paused = on
		if !on {
			p.halted = nil
		}
	})
}

// seek moves the partition to an offset that was found in a leader epoch.
func (p *partition) seek(to eventlog.Offset, epoch int32) {
	p.change(func() {
		p.seeks++
		p.handled, p.epoch, p.claimed, p.halted, p.sought = to, epoch, 0, nil, true
	})
}

// lose notes that the partition is not ours any more.
func (p *partition) lose() { p.change(func() { p.lost = true }) }

// isElsewhere reports whether there was a seek or the partition was lost, so that the result of
// run's work no longer matters. Only run calls it.
func (p *partition) isElsewhere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen != p.seeks || p.lost
}

func (p *partition) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// uncommitted returns the handled offset, and whether it must be committed. It need not be if a
// transaction of the handler has claimed that offset.
func (p *partition) uncommitted() (c group.Committed, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.informed = false
	at := max(p.committed, p.claimed)
	c = group.Committed{TopicPartition: p.key, Name: p.name.Topic, Offset: p.handled, LeaderEpoch: p.epoch, Since: p.since}
	c.Onward = p.handled >= at && !p.sought
	return c, (p.handled != at || p.sought) && !p.lost
}

func (p *partition) wasCommitted(upTo eventlog.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed, p.sought = upTo, false
}

// unproven returns the offset that the handler's transactions committed, unless they were rolled
// back, and whether that must be checked.
func (p *partition) unproven() (claimed eventlog.Offset, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed, p.claimed > p.committed && !p.lost
}

// proved notes whether the claimed offset was found committed.
func (p *partition) proved(claimed eventlog.Offset, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.claimed != claimed: // there was a seek or another claim meanwhile
	case is:
		p.committed = claimed
	default:
		p.claimed = 0
	}
}

// running returns the running call; false if none is running.
func (p *partition) running() (call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calling, !p.calling.began.IsZero()
}

func (p *partition) attrs(more ...any) []any {
	return append([]any{"group", p.c.sub.Group, "topic", p.name.Topic, "partition", p.name.Partition}, more...)
}

// sleep waits for d, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
