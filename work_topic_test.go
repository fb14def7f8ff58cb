package weir_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/everystore"
)

// A topic with events gets two queues, and a consumer group reads it. Each sees all events,
// whatever the others do with them: one queue gives up every message.
func TestQueuesAndAGroupOfATopicThatExistedDoNotNoticeEachOther(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "a queue on a topic of two shards")
		w := s.open(t)
		ensure(t, w, "orders", 3)
		const before, after = 30, 30
		publish(t, w, "orders", numbered("before", before)...)
		for name, attempts := range map[string]int{"mail": 1, "audit": 3} {
			if err := w.CreateQueue(t.Context(), weir.Queue{Name: name, Topic: "orders", Settings: weir.QueueSettings{Attempts: attempts}}); err != nil {
				t.Fatal(err)
			}
		}
		var group seen
		consume(t, w, weir.Subscription{Group: "orders-readers", Topics: []string{"orders"}, Handler: group.note})
		handled := map[string]chan string{"mail": make(chan string, 1000), "audit": make(chan string, 1000)}
		for name, values := range handled {
			if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: name, Handler: func(_ context.Context, j weir.Job) error {
				values <- string(j.Value)
				if name == "mail" {
					return errors.New("refused")
				}
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, w, "orders", numbered("after", after)...)
		for name, values := range handled {
			once := map[string]int{}
			for range before + after {
				once[next(t, values)]++
			}
			if len(once) != before+after {
				t.Errorf("queue %s handled %d messages, want %d, once each", name, len(once), before+after)
			}
		}
		group.wait(t, before+after)
		for name, dead := range map[string]int64{"mail": before + after, "audit": 0} {
			eventually(t, "queue "+name+" is through", func() bool {
				stats, err := w.QueueStats(t.Context(), name)
				return err == nil && stats == weir.QueueStats{Dead: dead}
			})
		}
		if n := len(handled["mail"]) + len(handled["audit"]) + len(group.all()) - before - after; n > 0 {
			t.Errorf("%d events came twice", n)
		}
		if n, err := w.RedriveAll(t.Context(), "mail", 0); err != nil || n != before+after {
			t.Errorf("redriven %d, %v", n, err)
		}
		for range before + after {
			next(t, handled["mail"])
		}
		if n := len(handled["audit"]); n > 0 {
			t.Errorf("the other queue got %d messages that were redriven", n)
		}
	})
}
