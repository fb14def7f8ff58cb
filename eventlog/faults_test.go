package eventlog_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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

func (c *counting) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	c.reads.Add(1)
	return c.Store.Read(ctx, spans, maxBytes)
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix, after, limit)
}

func (c *counting) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	c.lists.Add(1)
	return c.Store.Get(ctx, keys, maxBytes)
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

// strict is a store that holds the log to what Store.Commit says of a flush: no entry names a key
// that another one puts, and one that deletes partitions is alone.
type strict struct {
	eventlog.Store
	t *testing.T
}

func (s *strict) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	puts := make(map[string]int) // by which entry
	for i, e := range flush {
		if len(e.Forgets) > 0 && len(flush) > 1 {
			s.t.Errorf("an entry that deletes partitions %v is one of %d entries", e.Forgets, len(flush))
		}
		for _, p := range e.Puts {
			if _, twice := puts[p.Key]; twice {
				s.t.Errorf("two entries of a flush put %q", p.Key)
			}
			puts[p.Key] = i
		}
	}
	for i, e := range flush {
		for _, c := range e.Checks {
			if by, put := puts[c.Key]; put && by != i {
				s.t.Errorf("an entry checks %q, and another one of the flush puts it", c.Key)
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// flaky is a store whose reads fail after the next one, broken times.
type flaky struct {
	eventlog.Store
	broken atomic.Int64
	passed atomic.Bool
}

func (f *flaky) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if f.broken.Load() > 0 && f.passed.Swap(true) {
		f.broken.Add(-1)
		return nil, eventlog.ErrUnavailable
	}
	return f.Store.Read(ctx, spans, maxBytes)
}

// asked is a store that calls a function once, before a List of a prefix or a Get of a key with it.
type asked struct {
	eventlog.Store
	mu     sync.Mutex // guards what follows
	prefix string
	do     func()
}

func (a *asked) onceBefore(prefix string, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prefix, a.do = prefix, do
}

func (a *asked) before(key string) {
	a.mu.Lock()
	do := a.do
	if do == nil || !strings.HasPrefix(key, a.prefix) {
		do = func() {}
	} else {
		a.do = nil
	}
	a.mu.Unlock()
	do()
}

func (a *asked) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	a.before(prefix)
	return a.Store.List(ctx, prefix, after, limit)
}

func (a *asked) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	for _, key := range keys {
		a.before(key)
	}
	return a.Store.Get(ctx, keys, maxBytes)
}
