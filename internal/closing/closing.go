// Package closing divides the time that a caller gives to end work in order.
package closing

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Reserve is the time that is kept for what follows the handlers, such as a commit: at most a
// quarter of the time that was given.
const Reserve = time.Second

// Split divides the time until ctx ends: calls is for the running handlers, and ends a little
// earlier if ctx has a deadline. rest is for what follows, and ends Reserve after ctx. Call done at
// the end.
func Split(ctx context.Context) (calls, rest context.Context, done func()) {
	calls, cancelCalls := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		calls, cancelCalls = context.WithDeadline(ctx, deadline.Add(-min(Reserve, time.Until(deadline)/4)))
	}
	rest, cancelRest := Outlive(ctx, Reserve)
	return calls, rest, func() {
		cancelCalls()
		cancelRest()
	}
}

// Outlive returns a context that ends the given time after ctx, for work that has begun and should
// not be cut off at once. Call cancel at the end.
func Outlive(ctx context.Context, by time.Duration) (outlives context.Context, cancel context.CancelFunc) {
	outlives, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, end) })
	return outlives, func() { stop(); end() }
}

// All closes all elements of work concurrently, and returns their errors.
func All[C interface{ Close(context.Context) error }](ctx context.Context, work []C) error {
	errs := make([]error, len(work))
	var wait sync.WaitGroup
	for i, c := range work {
		wait.Go(func() { errs[i] = c.Close(ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}
