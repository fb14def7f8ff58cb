package weir

import (
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
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

// NewCategoriesRead is what a run has in memory of categories.
func NewCategoriesRead(l *Log) *categoriesRead {
	return &categoriesRead{log: l, byName: make(map[string]*stream.Category)}
}

// Get looks up the category of an event.
func (r *categoriesRead) Get(ctx context.Context, name string, id eventlog.TopicID) error {
	_, err := r.of(ctx, Event{Topic: name, from: &partition{key: group.TopicPartition{Topic: id}}})
	return err
}

func (r *categoriesRead) Len() int { return len(r.byName) }
