package eventlog_test

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
)

// gate is a store whose Commit waits while it is shut.
type gate struct {
	eventlog.Store
	mu   sync.Mutex // guards open
	open chan struct{}
}

func (g *gate) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
	return g.Store.Commit(ctx, flush)
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// counting counts trips.
type counting struct {
	eventlog.Store
	commits, reads, lists atomic.Int64
}

func (c *counting) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	c.commits.Add(1)
	return c.Store.Commit(ctx, flush)
}

func (c *counting) Read(ctx context.Context, spans []eventlog.Span) ([]eventlog.Slice, error) {
	c.reads.Add(1)
	return c.Store.Read(ctx, spans)
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix, after, limit)
}

// failing is a store whose next commits fail: with what is given, before or after they happened.
type failing struct {
	eventlog.Store
	mu     sync.Mutex // guards before and after
	before []error
	after  []error
}

func (f *failing) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := f.next(&f.before); err != nil {
		return nil, err
	}
	out, err := f.Store.Commit(ctx, flush)
	if err == nil {
		err = f.next(&f.after)
	}
	return out, err
}

func (f *failing) next(errs *[]error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (f *failing) fail(before, after []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}
