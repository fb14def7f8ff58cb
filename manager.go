package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// ProcessManager reacts to events of streams with events for other streams: an order that was paid
// has its parcel sent, a transfer that was begun debits one account and credits the other. Name,
// Categories and React are required.
//
// What React returns is appended in the same change of the log that commits the event as handled.
// So for each event it is appended exactly once, whatever fails: a process, the store, an answer
// that got lost. React itself may be called more than once for an event, and must have no other
// effects.
type ProcessManager struct {
	// Name is the consumer group of the process manager. All processes that run one of that name
	// share the partitions.
	Name string
	// Categories are the names of the categories whose events it gets. They must exist.
	Categories []string
	// React returns what to append to streams because of an event; nothing: the event is handled.
	// Calls for one stream come one after the other, in the order of its events; calls for streams
	// in different partitions run concurrently. If a stream is not at the version that a part
	// expects, or React fails, it is called again, as Retry says: so let React read the streams
	// that its decision depends on, and expect the versions that it read.
	React func(ctx context.Context, e CategoryEvent) ([]StreamPart, error)

	// Start is where the process manager begins if it has never run. Default: the first event.
	Start Position
	// Retry says how often and how soon an event is tried again. Default: 15 attempts, which take
	// one to two minutes.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default Halt: its partition
	// halts there until Consumer.Resume.
	DeadLetter DeadLetter
	// Concurrency bounds how many calls of React run concurrently in this process. Default 0: one
	// for each partition.
	Concurrency int
	// CommitEvery and Session are as in Subscription.
	CommitEvery, Session time.Duration
}

// CategoryEvent is an event that a process manager gets.
type CategoryEvent struct {
	StreamEvent
	Category string
	Deleted  bool // this is no event of the stream: it says that the stream was deleted. Version and Data mean nothing then
	Attempt  int  // how often this process has delivered it, from 1
}

// Manage runs a process manager until the returned Consumer or the Log is closed. Call it in as
// many processes as you like.
func (l *Log) Manage(ctx context.Context, m ProcessManager) (*Consumer, error) {
	if m.React == nil {
		return nil, errors.New("manage: the process manager has no React")
	}
	if m.DeadLetter == nil {
		m.DeadLetter = Halt
	}
	of := &categoriesRead{log: l, byName: make(map[string]*stream.Category)}
	c, err := l.consume(ctx, Subscription{
		Group: m.Name, Topics: m.Categories, Start: m.Start, Retry: m.Retry, DeadLetter: m.DeadLetter, Concurrency: m.Concurrency,
		CommitEvery: m.CommitEvery, Session: m.Session, whole: m.Start == Earliest,
		react: func(ctx context.Context, e Event) ([]StreamPart, error) {
			c, err := of.of(ctx, e)
			if err != nil {
				return nil, err
			}
			found, _, err := c.EventsIn(ctx, recordOf(e))
			if err != nil || len(found) == 0 {
				return nil, err
			}
			return m.React(ctx, CategoryEvent{StreamEvent: found[0], Category: e.Topic, Deleted: found[0].Type == stream.TypeDeleted, Attempt: e.Attempt})
		},
	}, false)
	return c, wrap(err, "manage %q", m.Name)
}

// appendReaction appends what a process manager's call returned, and commits the event as handled
// with it. While the outcome of an attempt is unknown, it tries again with the same reaction: a new
// reaction might be appended in addition.
func (p *partition) appendReaction(ctx, wait context.Context, e Event) error {
	parts, err := p.c.log.streams.Several(p.reaction...)
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("reaction to %d, %s", e.Offset, rand.Text())
	patience := wait
	for attempt := 1; ; attempt++ {
		err := p.c.commitReaction(ctx, p, eventlog.Offset(e.Offset)+1, mark, parts)
		var refused *group.AddError
		switch {
		case err == nil, errors.Is(err, errNotNow):
			return err
		case errors.As(err, &refused) && !errors.Is(err, ErrUnavailable):
			return refused.Err
		case errors.Is(err, ErrSpansShards): // nothing happened, in any attempt
			return err
		case errors.Is(err, ErrUnsure):
			patience = ctx // until the outcome is known, the event must not be delivered again
		}
		p.c.logger.Warn("the reaction to an event cannot be appended; trying again", p.attrs("offset", e.Offset, "attempt", attempt, "err", err)...)
		if !sleep(patience, deadLetterRetry.pause(attempt)) {
			return errNotNow
		}
	}
}
