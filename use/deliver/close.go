package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/closing"
)

// cutGrace is how long a handler may take to return after its context ended.
const cutGrace = 100 * time.Millisecond

// Close ends the consumer in order: no further call of the handler begins, running calls finish,
// what they handled is committed, and other members of the group take over the partitions
// immediately. When ctx is about to end, the contexts of calls that still run are cancelled. A call
// that does not return then is left behind: its events will be delivered again, and the error names
// its partition and offset. Close returns at the latest a second after ctx ends. A handler must not
// call it.
func (c *Consumer) Close(ctx context.Context) error {
	if !c.finish() {
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("close the consumer of group %q: another call is closing it: %w", c.sub.Group, context.Cause(ctx))
		}
	}
	calls, rest, done := closing.Split(ctx)
	defer done()
	all := c.all()
	errs := c.drain(calls, all)
	if err := c.commit(rest, all...); err != nil {
		errs = append(errs, fmt.Errorf("commit the offsets of handled events: %w", err))
	}
	errs = append(errs, c.member().Leave(rest))
	c.stop()
	select {
	case <-c.ended:
	case <-rest.Done():
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the consumer of group %q: %w", c.sub.Group, err)
	}
	return nil
}

// finish lets no further call of the handler begin. It returns false if finish was called before.
func (c *Consumer) finish() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.closed
	c.closed = true
	for _, p := range c.partitions {
		p.drain()
	}
	return first
}

// drain waits for the running calls, and cancels those that still run when ctx ends.
func (c *Consumer) drain(ctx context.Context, partitions []*Partition) (errs []error) {
	var late []*Partition
	for _, p := range partitions {
		select {
		case <-p.ended:
			continue
		case <-ctx.Done():
		}
		if call, runs := p.running(); runs {
			errs = append(errs, fmt.Errorf("the handler of %s/%d has been at offset %d for %v and did not return in time: the events that it was given will be delivered again",
				p.name.Topic, p.name.Partition, call.first, time.Since(call.began).Round(time.Millisecond)))
		}
		late = append(late, p)
	}
	for _, p := range late {
		p.cut(eventlog.ErrClosed)
	}
	grace := time.After(cutGrace)
	for _, p := range late {
		select {
		case <-p.ended:
		case <-grace:
			return errs
		}
	}
	return errs
}
