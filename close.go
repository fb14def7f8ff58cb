package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// closeReserve is the time that Close keeps to commit and to leave the group after the
	// handlers: at most a quarter of the time it was given.
	closeReserve = time.Second
	// cutGrace is how long a handler may take to return after its context ended.
	cutGrace = 100 * time.Millisecond
)

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
	c.log.forget(c)
	calls, rest, done := split(ctx)
	defer done()
	all := c.all()
	errs := c.drain(calls, all)
	errs = append(errs, wrap(c.commit(rest, all...), "commit the offsets of handled events"), c.member().Leave(rest))
	c.stop()
	select {
	case <-c.ended:
	case <-rest.Done():
	}
	return wrap(errors.Join(errs...), "close the consumer of group %q", c.sub.Group)
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
func (c *Consumer) drain(ctx context.Context, partitions []*partition) (errs []error) {
	var late []*partition
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

// split divides the time until ctx ends: calls is for the running handlers, and ends a little
// earlier if ctx has a deadline. rest is for the commit and what follows, and ends closeReserve
// after ctx.
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
