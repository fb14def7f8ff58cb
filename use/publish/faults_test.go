package publish_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
)

// gate is a store that counts commits, holds them up while it is shut, and loses answers when told
// to.
type gate struct {
	eventlog.Store
	commits atomic.Int64

	mu   sync.Mutex // guards what follows
	open chan struct{}
	lost int // how many of the next answers
}

func newGate(store eventlog.Store) *gate {
	g := &gate{Store: store, open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	g.commits.Add(1)
	g.mu.Lock()
	open, lost := g.open, g.lost > 0
	if lost {
		g.lost--
	}
	g.mu.Unlock()
	<-open
	out, err := g.Store.Commit(ctx, flush)
	if lost && err == nil {
		return nil, fmt.Errorf("test: %w", eventlog.ErrUnsure)
	}
	return out, err
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) lose(answers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = answers
}
