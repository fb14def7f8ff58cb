package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

func TestARefusedMessageSaysWhatChanged(t *testing.T) {
	p := begin(t, newStore(t), 20*time.Second)
	q := create(t, p.Queues, queue.Spec{Name: "mail", Settings: queue.Settings{Unique: true}})
	topic, err := p.log.Topic(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	stale := func(context.Context, eventlog.Entry, []queue.Going) (eventlog.Outcome, error) {
		return eventlog.Outcome{}, eventlog.ErrStale
	}
	for unique, want := range map[string]bool{"": false, "u": true} {
		err := q.EnqueueWith(t.Context(), topic.ID, stale, queue.NewMessage{Unique: unique})
		if err == nil || strings.Contains(err.Error(), "unique key") != want {
			t.Errorf("unique key %q: %v", unique, err)
		}
	}
}
