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
func (c *Consumer) Closing() bool { return c.isClosed() }

// Core is the log below.
func (l *Log) Core() *eventlog.Log { return l.log }

// ReadOnce reads a partition from an offset on as a consumer does, once, and returns how many
// events it then holds.
func ReadOnce(ctx context.Context, l *Log, p eventlog.Partition, from int64) (held int, err error) {
	r := &reader{log: l.log, id: p, next: eventlog.Offset(from), epoch: l.log.LeaderEpoch()}
	_, err = r.more(ctx, 0)
	return len(r.queue), err
}
