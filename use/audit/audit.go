// Package audit records who changed what. Each change of configuration or rights, and each action
// of an operator that destroys something, is an event of the topic weir.audit, in the same entry as
// the change: there is none without the other. Only a change that no single entry can make is
// recorded before it is made (Log.Record).
//
// A door says who its client is (By). A use adds the event to the entry that makes the change
// (Log.Add). A change without a client in its context is weir's own, and makes no event.
//
// audit.go makes events, who.go says who, event.go defines events and lists the verbs.
package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Topic is the topic of the events. Clients read it, and change its retention.
const Topic = eventlog.AuditTopic

const (
	// writer is who appends to the topic, for people.
	writer = "changes of configuration and rights"
	// keptFor is how long events are kept, unless somebody changes the topic's retention.ms.
	keptFor = 366 * 24 * time.Hour
)

// Log is an event log that records who changed what in it.
type Log struct {
	*eventlog.Log
	off    bool
	logger *slog.Logger
}

// New makes a log record who changes its topics, and returns what records other changes. Call it
// before the log is used. off: nothing is recorded.
func New(log *eventlog.Log, off bool, logger *slog.Logger) *Log {
	a := &Log{Log: log, off: off, logger: logger}
	log.Audit(topics{a})
	return a
}

// Of returns what records changes in a log. Its methods do nothing if nothing records them.
func Of(log *eventlog.Log) *Log {
	t, _ := log.Auditor().(topics)
	return t.Log
}

// records reports whether a change is recorded.
func (a *Log) records(ctx context.Context) (Who, bool) {
	who, known := of(ctx)
	return who, known && a != nil && !a.off && !a.ReadOnly()
}

// Records reports whether a change by the client of this context is recorded. If not, the caller
// need not read what only the event would tell.
func (a *Log) Records(ctx context.Context) bool {
	_, records := a.records(ctx)
	return records
}

// Prepare creates the topic if there is none, and gives it a partition on each shard. Call it
// before a change that Add is called for. It costs nothing but the first time.
func (a *Log) Prepare(ctx context.Context) error {
	if !a.Records(ctx) {
		return nil
	}
	own := Silent(ctx)
	t, err := a.Log.Topic(own, Topic)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		t, err = a.CreateTopic(own, eventlog.TopicSpec{
			Name: Topic, Partitions: a.Shards(), Writer: writer, Internal: true, Config: map[string]string{"retention.ms": strconv.FormatInt(keptFor.Milliseconds(), 10)},
		})
		if errors.Is(err, eventlog.ErrTopicExists) {
			t, err = a.Log.Topic(own, Topic)
		}
	}
	if err == nil && t.Writer == writer && len(t.Partitions) < a.Shards() { // shards were added
		t, err = a.ChangeTopic(own, Topic, eventlog.TopicChange{ID: t.ID, Partitions: a.Shards()})
	}
	if err != nil {
		return fmt.Errorf("prepare topic %s, which says who changed what; nothing was changed: %w", Topic, err)
	}
	if t.Writer != writer {
		a.logger.Error("a change is not recorded: a topic with the name "+Topic+" is older than that; delete it", "topic", Topic)
	}
	return nil
}

// Add adds events to the entry that makes the changes which they tell. key is one that the entry
// puts, or checks: the events are on its shard.
func (a *Log) Add(ctx context.Context, e *eventlog.Entry, key string, events ...Event) error {
	batch, has, err := a.batch(ctx, key, events)
	if err == nil && has {
		e.Batches = append(e.Batches, batch)
	}
	return err
}

// Batch returns a batch with events, for an entry that changes the key; false: there is nothing to
// record.
func (a *Log) Batch(ctx context.Context, key string, events ...Event) (eventlog.Batch, bool, error) {
	if err := a.Prepare(ctx); err != nil {
		return eventlog.Batch{}, false, err
	}
	return a.batch(ctx, key, events)
}

// Record appends events by themselves, for a change that no single entry can make. Call it before
// the change.
func (a *Log) Record(ctx context.Context, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := a.Prepare(ctx); err != nil {
		return err
	}
	b, has, err := a.batch(ctx, "", events)
	if err == nil && has {
		_, err = a.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{b}})
	}
	return err
}

func (a *Log) batch(ctx context.Context, key string, events []Event) (b eventlog.Batch, has bool, err error) {
	who, records := a.records(ctx)
	if !records || len(events) == 0 {
		return b, false, nil
	}
	t, err := a.Log.Topic(ctx, Topic)
	if err != nil {
		return b, false, err
	}
	if t.Writer != writer { // Prepare has logged it
		return b, false, nil
	}
	p, err := a.PartitionBeside(t, key)
	if err != nil {
		return b, false, err
	}
	now := time.Now()
	sealed := make([]batch.Record, len(events))
	for i, e := range events {
		sealed[i] = e.record(who, now)
	}
	b, err = t.Seal(p, sealed)
	return b, err == nil, err
}

// topics records the changes of topics, for the log.
type topics struct{ *Log }

// topicState is what events show of a topic.
type topicState struct {
	ID         string            `json:"id"`
	Partitions int               `json:"partitions"`
	Config     map[string]string `json:"config,omitempty"`
}

func stateOf(t eventlog.Topic) any {
	return topicState{t.ID.String(), len(t.Partitions), t.Config}
}

func (a topics) Topics(ctx context.Context, changed []eventlog.ChangedTopic) ([]eventlog.Batch, error) {
	var events []Event
	for _, c := range changed {
		switch {
		case eventlog.InternalTopic(c.Old.Name) || eventlog.InternalTopic(c.New.Name):
		case c.Old.Version == 0:
			events = append(events, Event{Verb: TopicCreate, Object: c.New.Name, After: stateOf(c.New)})
		case c.Old.Deleting(): // was told when it began
		case c.New.Name == "" || c.New.Deleting():
			events = append(events, Event{Verb: TopicDelete, Object: c.Old.Name, Before: stateOf(c.Old)})
		case len(c.Old.Partitions) != len(c.New.Partitions) || !maps.Equal(c.Old.Config, c.New.Config):
			events = append(events, Event{Verb: TopicAlter, Object: c.New.Name, Before: stateOf(c.Old), After: stateOf(c.New)})
		}
	}
	b, has, err := a.batch(ctx, "", events)
	if !has {
		return nil, err
	}
	return []eventlog.Batch{b}, err
}
