package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// closeReserve is what Close keeps of its time, a quarter of it at most, for what follows the handlers: to commit, and to tell the group.
	closeReserve = time.Second
	// cutGrace is how long a handler may take to return after its context ended.
	cutGrace = 100 * time.Millisecond
)

// Close ends the consumer in order: no further call of the handler begins, those that run finish, what they handled is
// committed, and the others of the group go on with the partitions at once. When ctx is about to end, the contexts of handlers
// that still run are cancelled; whatever does not return then is left behind, its events will be delivered again, and the error
// names the handler's place. Close returns a second after the end of ctx at the latest. A handler must not call it.
func (c *Consumer) Close(ctx context.Context) error {
	if !c.finish() {
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("close the consumer of group %q: it is being closed: %w", c.sub.Group, context.Cause(ctx))
		}
	}
	c.log.forget(c)
	calls, rest, done := split(ctx)
	defer done()
	all := c.all()
	errs := c.drain(calls, all)
	errs = append(errs, wrap(c.commit(rest, all...), "commit what was handled"), c.member().Leave(rest))
	c.stop()
	select {
	case <-c.ended:
	case <-rest.Done():
	}
	return wrap(errors.Join(errs...), "close the consumer of group %q", c.sub.Group)
}

// finish lets no further call of the handler begin. It reports false when that was done before.
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
func (c *Consumer) drain(ctx context.Context, partitions []*partition) (errs []error) {
	var late []*partition
	for _, p := range partitions {
		select {
		case <-p.ended:
			continue
		case <-ctx.Done():
		}
		if call, runs := p.running(); runs {
			errs = append(errs, fmt.Errorf("the handler of %s/%d has been at offset %d for %v and did not finish in time: what it was given will be delivered again",
				p.name.Topic, p.name.Partition, call.first, time.Since(call.began).Round(time.Millisecond)))
		}
		late = append(late, p)
	}
	for _, p := range late {
		p.cut(ErrClosed)
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

// split divides the time that ctx leaves: calls of handlers get the first part, and what must follow gets the rest, which ends
// with a reserve of its own when ctx was cancelled.
func split(ctx context.Context) (calls, rest context.Context, done func()) {
	calls, cancelCalls := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		calls, cancelCalls = context.WithDeadline(ctx, deadline.Add(-min(closeReserve, time.Until(deadline)/4)))
	}
	rest, cancelRest := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeReserve, cancelRest) })
	return calls, rest, func() {
		stop()
		cancelCalls()
		cancelRest()
	}
}

// forget removes a closed consumer from the list.
func (l *Log) forget(c *Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.consumers, c)
}
