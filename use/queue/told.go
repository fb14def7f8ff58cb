package queue

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
)

// shown is what the audit shows of a queue.
func (d definition) shown() any {
	var stored storedDefinition
	if err := json.Unmarshal(d.value(), &stored); err != nil {
		panic(err) // value has just encoded it
	}
	return struct {
		Topic    string         `json:"topic"`
		Settings storedSettings `json:"settings"`
	}{d.topic, stored.Settings}
}

// tell adds an audit event to the entry that changes a queue's definition.
func (qs *Queues) tell(ctx context.Context, e *eventlog.Entry, verb audit.Verb, name string, before, after any) error {
	b, has, err := audit.Of(qs.log).Batch(ctx, defKey(name), audit.Event{Verb: verb, Object: name, Before: before, After: after})
	if err == nil && has {
		e.Batches = append(e.Batches, b)
	}
	return err
}

// tellAltered is tell for a change of settings. If no setting becomes different, it adds nothing.
func (qs *Queues) tellAltered(ctx context.Context, e *eventlog.Entry, before, after definition) error {
	if bytes.Equal(before.value(), after.value()) {
		return nil
	}
	verb, resumed := audit.QueueAlter, after
	resumed.settings.Paused = before.settings.Paused
	if bytes.Equal(before.value(), resumed.value()) {
		verb = audit.QueueResume
		if after.settings.Paused {
			verb = audit.QueuePause
		}
	}
	return qs.tell(ctx, e, verb, after.name, before.shown(), after.shown())
}
