package weir

import (
	"context"

	"github.com/weir-log/weir/eventlog"
)

// OpenStore is Open on a store that the test has.
func OpenStore(ctx context.Context, store eventlog.Store, opts Options) (*Log, error) {
	return open(ctx, store, opts)
}

// Closing reports whether Close was called: no further call of the handler begins.
func (c *Consumer) Closing() bool { return c.c.Closing() }

// Core is the log below.
func (l *Log) Core() *eventlog.Log { return l.log }
