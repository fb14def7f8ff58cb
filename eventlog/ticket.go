package eventlog

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
)

// Ticket is an entry that was submitted. Wait returns its outcome.
type Ticket struct {
	entry  Entry
	build  func() (Entry, bool) // makes the entry when a flush takes the ticket; nil once it was called
	built  chan struct{}        // closed once build has returned; nil without build
	shared mergeable            // what may share an entry with other tickets; nil: entry is committed as it is
	number uint64               // counts the tickets of the log, from 1 on
	size   int64                // its share of budget, in bytes
	budget *semaphore.Weighted  // the budget of the queue that it is in
	upkeep bool                 // it goes before other tickets (Log.SubmitUpkeep)
	stays  bool                 // its caller cannot withdraw it (Entry.Stays)
	trace  []batch.RecordHeader // names the span of its caller; nil when there is none

	due   time.Time // flush it at this time at the latest; the zero value: at once
	waits []waiting // its parts in topics that linger, if it has a due time

	a       *appender
	commits uint64 // appender.commits when the ticket was submitted

	state atomic.Int32
	done  chan struct{} // closed once outcome and err are there
	out   Outcome
	err   error
}

// A ticket's state until it is done. The first transition out of queued decides:
//
//	queued ──► sent ──► (done)    the appender commits it
//	   │  ◄────┘                  certainly not committed: it waits for the next flush
//	   └─────► withdrawn          its caller gave up first: it is certainly never committed
const (
	queued int32 = iota
	sent
	withdrawn
)

// Wait returns the outcome. With a nil error the entry is durable.
//
// ErrStale, ErrNoPartition, ErrTooLarge, ErrOutOfOrder, ErrFenced and ErrUnknownProducer refuse the
// entry. ErrUnavailable and ErrClosed mean that it certainly did not happen, ErrUnsure that it may
// have. If ctx ends first, an entry that was not sent yet is withdrawn and the error is
// ErrOverloaded if the store committed others' entries meanwhile, otherwise ErrUnavailable; if it
// was sent, or Stays, the error is ErrUnsure.
func (t *Ticket) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-t.done:
		return t.out, t.err
	case <-ctx.Done():
	}
	select {
	case <-t.done: // both were ready: the outcome is the better answer
		return t.out, t.err
	default:
	}
	if !t.stays && t.state.CompareAndSwap(queued, withdrawn) {
		return Outcome{}, fmt.Errorf("append: %w: gave up before the entry was sent (%w)", t.late(), context.Cause(ctx))
	}
	if t.built != nil { // wait for build: once Wait has returned, the caller may read what build wrote
		select {
		case <-t.built:
		case <-t.done:
		}
	}
	return Outcome{}, fmt.Errorf("append: %w: gave up while waiting for the store (%w)", ErrUnsure, context.Cause(ctx))
}

// late returns the error for a ticket that was not sent in its caller's time: ErrOverloaded if the
// store has committed the entries of others meanwhile.
func (t *Ticket) late() error {
	if t.a.commits.Load() > t.commits && !t.a.failing.Load() {
		return ErrOverloaded
	}
	return ErrUnavailable
}

// finish builds the entry of a ticket of SubmitLate. It returns false if there is nothing to
// commit. A panic of build is this ticket's error: build is its caller's code.
func (t *Ticket) finish() (ok bool, err error) {
	defer close(t.built)
	err = recovered.Do(func() error { t.entry, ok = t.build(); return nil })
	t.build = nil
	if err != nil {
		return false, fmt.Errorf("build an entry: %w", err)
	}
	return ok, nil
}

func (t *Ticket) take() bool { return t.state.CompareAndSwap(queued, sent) }
func (t *Ticket) putBack()   { t.state.Store(queued) }

func (t *Ticket) resolve(out Outcome, err error) {
	t.out, t.err = out, err
	close(t.done)
}
