package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/group"
)

// Event is a record that a partition passes to the handler.
type Event struct {
	batch.Record
	Attempt int // how often this process delivered it, from 1
}

func (e *Event) at() eventlog.Offset { return eventlog.Offset(e.Offset) }

// Partition is one partition of a consumer. One goroutine reads it, calls the handler, and retries
// failed events:
//
//	gather ──► call ──► judge ──► handled
//	   ▲                  │
//	   └───── pause ◄─────┴─────► dead letter
type Partition struct {
	c      *Consumer
	name   TopicPartition
	key    group.TopicPartition
	since  int32  // as group.Assigned.Since
	member string // the member that it was assigned to: a consumer that was evicted and joins again is a new member

	drain context.CancelFunc      // prevents further calls
	cut   context.CancelCauseFunc // prevents further calls, and ends the context of the running call
	ended chan struct{}           // closed when the goroutine has ended

	// Owned by run.
	reader   reader
	seen     int             // the number of seeks that run has applied
	trouble  trouble         // the failures of the next event
	alone    eventlog.Offset // events below this offset are passed to the handler one by one, and tried only once
	unsure   bool            // dead letters may have been committed by an attempt with unknown outcome
	reaction Reaction        // what the last call of React returned, to be appended

	mu       sync.Mutex // guards what follows
	control  control
	progress progress
	tx       transaction
	calling  call // the running call of the handler
}

// control is what others than its goroutine have requested of a partition, and whether the
// goroutine has halted it.
type control struct {
	seeks  int // how many seeks were requested
	paused bool
	halted error              // why it has halted, until Resume or Seek; nil: it has not
	gaveUp error              // why it gave up the event at which it has halted; nil: it did not
	lost   bool               // the group took it from this consumer
	wake   context.CancelFunc // ends run's wait
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

// Topic is the name of the partition's topic.
func (p *Partition) Topic() string { return p.name.Topic }

// TopicID is the id of the partition's topic: another topic may have its name later.
func (p *Partition) TopicID() eventlog.TopicID { return p.key.Topic }

// Number is the partition's number in its topic.
func (p *Partition) Number() int32 { return p.name.Partition }

// errNotNow: the handler was not called, or the commit of its dead letters or of its reaction was
// given up, because the partition was paused, got a seek, was lost, or is being closed.
var errNotNow = errors.New("not now")

// run works until the context draining ends. Handlers get the context ctx.
func (p *Partition) run(ctx, draining context.Context) {
	defer close(p.ended)
	var wait context.Context
	stopped := false
	for draining.Err() == nil {
		if wait == nil || wait.Err() != nil {
			wait, stopped = p.renew(draining)
		}
		if stopped {
			<-wait.Done()
			continue
		}
		if events := p.gather(ctx, wait); len(events) > 0 {
			err := p.call(ctx, wait, events)
			if err == nil && p.reaction != nil {
				err = p.appendReaction(ctx, wait, events[0])
			}
			p.judge(ctx, wait, events, err)
		}
	}
}

// renew applies the requests to the partition (pause, seek, …). The context wait ends at the next
// request.
func (p *Partition) renew(draining context.Context) (wait context.Context, stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control.wake != nil {
		p.control.wake() // releases the previous context
	}
	wait, p.control.wake = context.WithCancel(draining)
	if p.seen != p.control.seeks {
		p.seen = p.control.seeks
		p.reader.seek(p.progress.handled, p.progress.epoch)
		p.trouble, p.alone = trouble{}, 0
	}
	return wait, p.control.paused || p.control.halted != nil
}

// gather waits for the next events for the handler: MinBatch of them, or those that are there after
// MaxWait. If reading stops before that, because of an error, a gap, or the end of the context
// wait, it returns the events that are there, perhaps none.
func (p *Partition) gather(ctx, wait context.Context) []Event {
	least, most := p.c.sub.MinBatch, p.c.sub.MaxBatch
	var until time.Time
	for wait.Err() == nil {
		if outside := p.reader.dropLost(); outside != nil {
			p.goOn(outside)
		}
		queue := p.reader.queue
		if len(queue) > 0 && queue[0].at() < p.alone {
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

// read waits for more events, at most for patience. It returns false if gather must not wait for
// more: because of a request, an error, or a gap or broken batch after the events in the queue,
// which come first.
func (p *Partition) read(ctx, wait context.Context, patience time.Duration) bool {
	outside, err := p.reader.more(wait, patience)
	var broken *brokenError
	switch {
	case outside != nil && p.c.sub.Whole && outside.Asked < outside.First:
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
		p.giveUp(ctx, wait, p.failure(broken.event(), broken, 1), broken.next)
	case err != nil:
		p.c.logger.Warn("a partition cannot be read; trying again", p.attrs("err", err)...)
		retry.Sleep(wait, readPause)
		return false
	}
	if len(p.reader.queue) == 0 {
		p.advance(p.reader.next) // past offsets that hold no events
	}
	return true
}

// goOn notes that the reader continues at another offset, because events are not there any more.
func (p *Partition) goOn(outside *eventlog.RangeError) {
	p.c.logger.Warn("events do not exist any more; continuing with those that exist", p.attrs("asked", outside.Asked, "first", outside.First, "next", outside.Next)...)
	if outside.Asked > outside.Next {
		p.trouble, p.alone = trouble{}, 0 // both are about events that are lost
		p.goBack(outside.Next)
	}
}

// ErrEventsMissing: events of a partition were deleted before a subscription that must have them
// all (Whole) has handled them.
var ErrEventsMissing = errors.New("events are missing")

// lack halts the partition, because events that its handler must have are not there any more.
func (p *Partition) lack(outside *eventlog.RangeError) {
	err := fmt.Errorf("%w: topic %q no longer has the offsets [%d, %d) of partition %d: they were deleted, by the topic's retention or by a request",
		ErrEventsMissing, p.name.Topic, outside.Asked, outside.First, p.name.Partition)
	p.c.logger.Error("partition halted: its handler needs events that were deleted; to continue without them, set Projection.SkipMissing",
		p.attrs("asked", outside.Asked, "first", outside.First)...)
	p.haltAt(err, nil)
}

// haltAt stops the partition until it is resumed, unless there was a seek meanwhile. gaveUp is why
// an event was given up, if that halts the partition. Only run calls it.
func (p *Partition) haltAt(err, gaveUp error) {
	p.change(func() {
		if p.seen == p.control.seeks {
			p.control.halted, p.control.gaveUp = err, gaveUp
		}
	})
}

// readPause is the pause between two attempts to read a partition.
const readPause = time.Second

// call waits until one more call may run (Concurrency), and calls the handler.
func (p *Partition) call(ctx, wait context.Context, events []Event) (err error) {
	if tracer := p.c.d.Tracer; tracer != nil {
		info := eventlog.SpanInfo{Topic: p.name.Topic, Group: p.c.sub.Group, Records: len(events)}
		for i := range events {
			info.Link(events[i].Headers)
		}
		var end func(error)
		ctx, end = tracer.Start(ctx, "deliver", info)
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
func (p *Partition) handle(ctx context.Context, events []Event) (err error) {
	if tracer := p.c.d.Tracer; tracer != nil {
		var end func(error)
		ctx, end = tracer.Start(ctx, "handle", eventlog.SpanInfo{Topic: p.name.Topic, Group: p.c.sub.Group, Records: len(events)})
		defer func() { end(err) }()
	}
	err = recovered.Do(func() (err error) {
		if p.c.sub.React != nil {
			p.reaction = nil
			p.reaction, err = p.c.sub.React(ctx, p, events[0])
			return err
		}
		return p.c.sub.Handle(ctx, p, events)
	})
	if panicked := (*recovered.Error)(nil); errors.As(err, &panicked) && events[0].Attempt == 1 {
		p.c.logger.Error("handler panicked", p.attrs("offset", events[0].Offset, "panic", panicked.Value, "stack", string(panicked.Stack))...)
	}
	return err
}

// begin notes that a call begins. It returns false if there was another request meanwhile, such as
// a pause.
func (p *Partition) begin(wait context.Context, events []Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait.Err() != nil {
		return false
	}
	for i := range events {
		events[i].Attempt++
	}
	p.calling = call{first: events[0].at(), began: time.Now()}
	p.tx = transaction{}
	return true
}

func (p *Partition) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calling = call{}
}

// judge decides, by the result of a call, what happens to its events.
func (p *Partition) judge(ctx, wait context.Context, events []Event, err error) {
	switch {
	case err == nil && p.refusal() != handledElsewhere: // after handledElsewhere (CommitTx was refused, because another consumer had committed first), nil does not mean that this call handled the events
		p.took(events)
		return
	case errors.Is(err, errNotNow), ctx.Err() != nil, p.reconcile(ctx, wait), p.waitsForGroup(wait): // the call was not made; the consumer ends; the events are handled, or come again; the partition was not ours
		return
	}
	index, named := retry.FailedIndex(err, len(events))
	p.took(events[:index])
	e := events[index]
	if p.trouble.offset != e.at() || p.trouble.attempts == 0 {
		p.trouble = trouble{offset: e.at(), first: time.Now()}
	}
	p.trouble.attempts++
	switch last := retry.IsPermanent(err) || e.at() < p.alone || p.c.sub.Retry.Spent(p.trouble.attempts); {
	case !last:
		pause := p.c.sub.Retry.Pause(p.trouble.attempts)
		p.c.logger.Warn("handler failed; trying again", p.attrs("offset", e.Offset, "attempt", p.trouble.attempts, "pause", pause, "err", err)...)
		retry.Sleep(wait, pause)
	case !named && len(events) > 1:
		p.c.logger.Warn("handler failed; trying each event of the batch on its own", p.attrs("offset", e.Offset, "events", len(events), "err", err)...)
		p.alone = events[len(events)-1].at() + 1
	default:
		p.giveUp(ctx, wait, p.failure(e, err, e.Attempt), e.at()+1)
	}
}

// took notes that events were handled.
func (p *Partition) took(events []Event) {
	if n := len(events); n > 0 {
		p.reader.take(n)
		p.trouble = trouble{}
		p.advance(events[n-1].at() + 1)
	}
}

// change calls f with mu locked, and wakes run.
func (p *Partition) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if p.control.wake != nil {
		p.control.wake()
	}
}

// pause pauses the partition, or resumes it.
func (p *Partition) pause(on bool) {
	p.change(func() {
		p.control.paused = on
		if !on {
			p.control.halted, p.control.gaveUp = nil, nil
		}
	})
}

// seek moves the partition to an offset that was found in a leader epoch.
func (p *Partition) seek(to eventlog.Offset, epoch int32) {
	p.change(func() {
		p.control.seeks++
		p.control.halted, p.control.gaveUp = nil, nil
		p.progress.seek(to, epoch)
	})
}

// lose notes that the partition is not ours any more.
func (p *Partition) lose() { p.change(func() { p.control.lost = true }) }

// isElsewhere reports whether there was a seek or the partition was lost, so that the result of
// run's work no longer matters. Only run calls it.
func (p *Partition) isElsewhere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen != p.control.seeks || p.control.lost
}

func (p *Partition) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.control.lost
}

// lostBefore reports whether the partition was lost before an offset was committed.
func (p *Partition) lostBefore(offset eventlog.Offset) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.control.lost && p.progress.committed != offset
}

// running returns the running call; false if none is running.
func (p *Partition) running() (call, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calling, !p.calling.began.IsZero()
}

func (p *Partition) attrs(more ...any) []any {
	return append([]any{"group", p.c.sub.Group, "topic", p.name.Topic, "partition", p.name.Partition}, more...)
}
