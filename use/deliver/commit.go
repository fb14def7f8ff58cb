package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
)

// wakeCommits wakes commits.
func (c *Consumer) wakeCommits() { poke(c.dirty) }

// commits commits what was handled, until ctx ends: immediately after an idle time, otherwise every
// CommitEvery.
func (c *Consumer) commits(ctx context.Context) {
	failures := 0
	for {
		select {
		case <-c.dirty:
		case <-ctx.Done():
			return
		}
		pause := c.sub.CommitEvery
		err := c.commit(ctx, c.all()...)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return // ctx ended; Close commits what is left
		default:
			failures++
			pause = max(pause, commitRetry.Pause(failures))
			c.logger.Warn("offsets cannot be committed; trying again", "group", c.sub.Group, "err", err)
			poke(c.dirty)
		}
		retry.Sleep(ctx, pause)
	}
}

var commitRetry = retry.Policy{First: 100 * time.Millisecond, Max: 5 * time.Second}

// commit commits the partitions' handled offsets in one store call, or in one for each of them if
// the group has taken one away. If it returns nil, the offsets of all partitions that are still
// ours are committed. If transactions of the handler should have committed some of them, it first
// checks whether they did: one more call for all partitions.
func (c *Consumer) commit(ctx context.Context, partitions ...*Partition) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer c.giveTurn()
	if err := c.prove(ctx, partitions); err != nil {
		return err
	}
	return c.commitNow(ctx, partitions)
}

// prove checks which offsets of the handler's transactions are committed. If a transaction was
// rolled back, commit_offset refuses all later transactions until the group's offset is repaired.
// So no later transaction has committed, and the offset may be committed now. The caller holds the
// turn.
func (c *Consumer) prove(ctx context.Context, partitions []*Partition) error {
	var of []*Partition
	var claims []eventlog.Offset
	for _, p := range partitions {
		if claimed, is := p.unproven(); is {
			of, claims = append(of, p), append(claims, claimed)
		}
	}
	if len(of) == 0 {
		return nil
	}
	at, err := c.positions(ctx, of...)
	if err != nil {
		return err
	}
	for i, p := range of {
		p.proved(claims[i], at[i] >= claims[i]) // if the offset is above the claim, another consumer committed first: the next transaction will find out
	}
	return nil
}

// commitNow commits handled offsets that are neither committed nor claimed by a transaction. The
// caller holds the turn.
func (c *Consumer) commitNow(ctx context.Context, partitions []*Partition) error {
	var offsets []group.Committed
	var of []*Partition
	for _, p := range partitions {
		if o, is := p.uncommitted(); is {
			offsets, of = append(offsets, o), append(of, p)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	err := c.member().Commit(ctx, offsets)
	if err == nil {
		for i, p := range of {
			p.wasCommitted(offsets[i].Offset)
		}
		return nil
	}
	if !errors.Is(err, group.ErrFenced) || len(of) == 1 {
		return err
	}
	// One partition is no longer ours, and must not block the other partitions.
	var errs []error
	for i, p := range of {
		switch err := c.member().Commit(ctx, offsets[i:i+1]); {
		case err == nil:
			p.wasCommitted(offsets[i].Offset)
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// commitLetters publishes dead letters and commits next with them: both or neither, and only once,
// however often it is called with the same mark. On a store made of shards, letters that go to
// another shard than the group's are published before the commit, and may be there twice after a
// crash. Only run calls it.
func (c *Consumer) commitLetters(ctx context.Context, p *Partition, next eventlog.Offset, mark string, letters []publish.Event) error {
	return c.commitOnce(ctx, p, next, mark, func(offset group.Committed) error {
		err := c.d.Publisher.PublishWith(ctx, func(ctx context.Context, batches []eventlog.Batch, _ []publish.Within) error {
			return c.member().Commit(ctx, []group.Committed{offset}, batches...)
		}, letters...)
		if !errors.Is(err, eventlog.ErrSpansShards) {
			return err
		}
		for _, letter := range letters { // each by itself: they may be on several shards
			if _, err := c.d.Publisher.Publish(ctx, letter); err != nil {
				return err
			}
		}
		return c.member().Commit(ctx, []group.Committed{offset})
	})
}

// commitReaction appends a reaction and commits next with that: both or neither, and only once,
// however often it is called with the same mark. Only run calls it. *group.AddError: nothing was
// appended or committed, not even by an earlier call.
func (c *Consumer) commitReaction(ctx context.Context, p *Partition, next eventlog.Offset, mark string, add Reaction) error {
	return c.commitOnce(ctx, p, next, mark, func(offset group.Committed) error {
		return c.member().CommitWith(ctx, []group.Committed{offset}, add)
	})
}

// commitOnce commits next, marked with mark, by calling the function with, which commits other
// changes in the same entry.
func (c *Consumer) commitOnce(ctx context.Context, p *Partition, next eventlog.Offset, mark string, with func(offset group.Committed) error) error {
	// From here on nothing else of the partition is committed: while the outcome is unknown, a
	// commit could move the group back.
	if err := c.commit(ctx, p); err != nil {
		return err
	}
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer c.giveTurn()
	if p.isElsewhere() {
		return errNotNow
	}
	err := with(group.Committed{TopicPartition: p.key, Name: p.name.Topic, Offset: next, LeaderEpoch: p.reader.epoch, Metadata: mark, Since: p.since, Onward: true})
	if err == nil {
		p.advance(next) // under the turn: otherwise another commit could move the group back
		p.wasCommitted(next)
	}
	return err
}

// takeTurn takes the lock for commits.
func (c *Consumer) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("commit: %w: gave up while it waited for another commit to end (%w)", eventlog.ErrUnavailable, context.Cause(ctx))
	}
}

func (c *Consumer) giveTurn() { <-c.turn }

// positions returns the group's committed offsets in some partitions: one store call for each
// thousand. It includes what transactions of handlers committed, whether the mover has moved it
// into the log or not.
func (c *Consumer) positions(ctx context.Context, partitions ...*Partition) ([]eventlog.Offset, error) {
	of, at := make([]group.TopicPartition, len(partitions)), make([]eventlog.Offset, len(partitions))
	for i, p := range partitions {
		of[i] = p.key
	}
	found, err := c.d.SQL.Positions(ctx, c.sub.Group, of) // only a handler that has committed in a transaction needs it
	for i := range found {
		at[i] = found[i].Offset
	}
	return at, err
}
