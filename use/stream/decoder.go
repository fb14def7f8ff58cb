package stream

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Decoder finds the events in records of categories' topics, for readers of the topics. It
// remembers the categories. A category that was deleted and created again is a different one, and
// takes the place of the earlier one. Methods may be called concurrently.
type Decoder struct {
	streams *Streams
	mu      sync.Mutex // guards byName
	byName  map[string]*Category
}

// Decoder returns a Decoder that remembers nothing yet.
func (s *Streams) Decoder() *Decoder {
	return &Decoder{streams: s, byName: make(map[string]*Category)}
}

// Events is Category.EventsIn for records of the topic with a name and an id. ErrUnknownCategory if
// the name is another topic's by now.
func (d *Decoder) Events(ctx context.Context, topic string, id eventlog.TopicID, records ...batch.Record) (events []Event, of []int, err error) {
	c, err := d.category(ctx, topic, id)
	if err != nil {
		return nil, nil, err
	}
	return c.EventsIn(ctx, records...)
}

// Known is how many categories it remembers.
func (d *Decoder) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.byName)
}

func (d *Decoder) category(ctx context.Context, name string, id eventlog.TopicID) (*Category, error) {
	d.mu.Lock()
	c := d.byName[name]
	d.mu.Unlock()
	if c != nil && c.ID() == id {
		return c, nil
	}
	c, err := d.streams.Category(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.ID() != id {
		return nil, fmt.Errorf("%w: %q was deleted and created again", ErrUnknownCategory, name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byName[name] = c
	return c, nil
}
