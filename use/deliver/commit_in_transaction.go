package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/group"
)

// Errors of a handler that commits within its own transaction.
var (
	// ErrNotAssigned: the partition is not, or no longer, assigned to this consumer; or Seek moved
	// it while the handler ran.
	ErrNotAssigned = errors.New("the partition is not assigned to this consumer")
	// ErrHandled: another consumer has already committed the offset of the event, or of an earlier
	// event of the batch.
	ErrHandled = errors.New("the event was handled before")
)

// errBehind: an earlier transaction that should have raised the group's offset was rolled back, and
// this transaction came before prove noticed that.
var errBehind = errors.New("the group's offset was too low, because an earlier transaction of this handler was rolled back; it is correct now: " +
	"roll this transaction back too and return this error; then the event is delivered again immediately")

// Positions knows the committed offsets of a group, including those that handlers committed in
// their transactions, whether these were moved into the log or not: one store call for each
// thousand.
type Positions interface {
	Positions(ctx context.Context, group string, of []group.TopicPartition) ([]group.Position, error)
}

// TxCommit is what a handler's transaction commits.
type TxCommit struct {
	Group     string
	Topic     eventlog.TopicID
	Partition int32
	Member    string
	Next      eventlog.Offset  // the group's new offset
	From      *eventlog.Offset // the offset that the group has if no earlier transaction was rolled back; nil: this call of the handler has already committed
}

// transaction is what the running or last call of the handler committed in its own transaction.
type transaction struct {
	upTo    eventlog.Offset // 0: nothing
	epoch   int32           // the leader epoch before the first of the call's commits began
	refused refusal
}

// refusal is why a commit in a call was refused; of several, the highest.
type refusal int

const (
	notRefused       refusal = iota
	notAssigned              // the partition is not assigned to this consumer
	behind                   // the group's offset was below handled; it has been repaired since
	handledElsewhere         // another consumer had committed first
)

// CommitTx commits, within the handler's own transaction, that the events up to and with one offset
// were handled. run writes the commit with that transaction; it returns ErrHandled or
// ErrNotAssigned if the store refuses it for one of these reasons. The handler calls CommitTx while
// it runs.
func (p *Partition) CommitTx(ctx context.Context, offset eventlog.Offset, run func(context.Context, TxCommit) error) error {
	if call, runs := p.running(); !runs || offset < call.first {
		return fmt.Errorf("%w: its handler has returned", ErrNotAssigned)
	}
	from, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	next := offset + 1
	err = run(ctx, TxCommit{Group: p.c.sub.Group, Topic: p.key.Topic, Partition: p.name.Partition, Member: p.member, Next: next, From: from})
	if errors.Is(err, ErrHandled) {
		err = p.catchUp(ctx, err)
	}
	p.endTx(next, err)
	return err
}

// beginTx commits what was handled before, and returns the offset that the group has if no earlier
// transaction was rolled back; nil if this call of the handler has already committed an offset.
func (p *Partition) beginTx(ctx context.Context) (from *eventlog.Offset, err error) {
	if err := p.c.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.c.giveTurn()
	epoch := p.c.d.Log.LeaderEpoch()
	if err := p.c.commitNow(ctx, []*Partition{p}); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != p.control.seeks {
		return nil, fmt.Errorf("%w: Seek moved the consumer to another offset", ErrNotAssigned)
	}
	if p.tx.upTo > 0 {
		return nil, nil
	}
	p.tx.epoch = epoch
	known := p.progress.known()
	return &known, nil
}

// catchUp finds out why a commit was refused. Either another consumer committed first, or the
// group's offset is below what this consumer has handled: then catchUp commits the handled offset,
// if the partition is still ours.
func (p *Partition) catchUp(ctx context.Context, refused error) error {
	if err := p.c.takeTurn(ctx); err != nil {
		return err
	}
	defer p.c.giveTurn()
	at, err := p.c.positions(ctx, p)
	if err != nil {
		return fmt.Errorf("%w, after: %v", err, refused) // so it is unknown whether the event was handled
	}
	p.mu.Lock()
	before := at[0] > p.progress.handled
	if !before {
		p.progress.committed, p.progress.claimed = at[0], 0
	}
	p.mu.Unlock()
	if before {
		return refused
	}
	if err := p.c.commitNow(ctx, []*Partition{p}); err != nil {
		return fmt.Errorf("%w, after: %v", err, refused)
	}
	return errBehind
}

func (p *Partition) endTx(next eventlog.Offset, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.tx.upTo = next
	case errors.Is(err, ErrHandled):
		p.tx.refused = max(p.tx.refused, handledElsewhere)
	case errors.Is(err, ErrNotAssigned):
		p.tx.refused = max(p.tx.refused, notAssigned)
	case errors.Is(err, errBehind):
		p.tx.refused = max(p.tx.refused, behind)
	}
}

func (p *Partition) refusal() refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tx.refused
}

// notAssignedPause is how long a partition waits after the group took it, or its topic was deleted:
// within that time the consumer learns of it.
const notAssignedPause = 5 * time.Second

// waitsForGroup waits, if the call's commit was refused because the partition is not ours, until
// the partition is taken away. It returns whether the commit was refused for that reason.
func (p *Partition) waitsForGroup(wait context.Context) bool {
	is := p.refusal() == notAssigned
	if is {
		retry.Sleep(wait, notAssignedPause)
	}
	return is
}

// reconcile finds out, after a call that failed or was refused, whether its transaction was
// committed, or another consumer committed first. It returns true if the failure does not count:
// the partition continues at the committed offset, or the event comes again.
func (p *Partition) reconcile(ctx, wait context.Context) bool {
	p.mu.Lock()
	tx, handled := p.tx, p.progress.handled
	p.mu.Unlock()
	if tx.upTo == 0 && tx.refused != handledElsewhere {
		return tx.refused == behind
	}
	epoch := p.c.d.Log.LeaderEpoch()
	at, err := p.c.positions(ctx, p)
	switch {
	case err != nil:
		p.c.logger.Warn("the group's offset cannot be read; trying again", p.attrs("err", err)...)
		retry.Sleep(wait, readPause)
		return true
	case at[0] > handled:
		p.c.member().Claimed(p.key, p.since, at[0], epoch)
		p.change(func() {
			if p.seen == p.control.seeks { // there was no seek meanwhile
				p.control.seeks++
				p.progress.handled, p.progress.epoch, p.progress.committed, p.progress.claimed = at[0], epoch, at[0], 0
			}
		})
		return true
	}
	return tx.refused == handledElsewhere || tx.refused == behind
}
