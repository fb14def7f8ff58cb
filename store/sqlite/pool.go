package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// pool holds conns, each for one caller at a time.
type pool struct {
	idle   chan *conn
	size   int
	closed <-chan struct{}
}

func newPool(closed <-chan struct{}, most int) *pool {
	return &pool{idle: make(chan *conn, most), closed: closed}
}

func (p *pool) add(c *conn) {
	p.size++
	p.idle <- c
}

// take waits for a conn until ctx ends. The caller gives it back.
func (p *pool) take(ctx context.Context) (*conn, error) {
	select {
	case <-p.closed:
		return nil, eventlog.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	select {
	case c := <-p.idle:
		return c, nil
	case <-p.closed:
		return nil, eventlog.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: waited for a free connection: %w", eventlog.ErrUnavailable, ctx.Err())
	}
}

func (p *pool) give(c *conn) { p.idle <- c }

// drain takes every conn, waiting for callers to give it back.
func (p *pool) drain(take func(*conn)) {
	for range p.size {
		take(<-p.idle)
	}
}

// shut waits for every conn to be given back, and closes it.
func (p *pool) shut() error {
	var errs []error
	for range p.size {
		errs = append(errs, (<-p.idle).close())
	}
	return errors.Join(errs...)
}
