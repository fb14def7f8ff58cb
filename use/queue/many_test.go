package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// However many partitions a queue has, their states are read many at a time, whatever is asked.
func TestTheStatesOfManyPartitionsAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 1500
		store := &far{Store: newStore(t)}
		spec := queue.Spec{Name: "mail", Partitions: partitions, Settings: queue.Settings{Priorities: 2, Unique: true}}
		q := create(t, start(t, store), spec)
		var ms []queue.NewMessage
		for i := range 2 * partitions {
			ms = append(ms, queue.NewMessage{Key: []byte(fmt.Sprint(i)), Priority: i % 2})
		}
		if _, err := q.Enqueue(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		if err := start(t, store).Purge(t.Context(), spec.Name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of fake time: what the queue had is forgotten, in the background
		for name, do := range map[string]func(ctx context.Context, qs *queue.Queues, q *queue.Queue) error{
			"claim": func(ctx context.Context, _ *queue.Queues, q *queue.Queue) error {
				got, err := q.Claim(ctx, queue.Claim{})
				if err == nil && len(got) > 0 {
					err = fmt.Errorf("got %v", got)
				}
				return err
			},
			"claim that may be repeated": func(ctx context.Context, _ *queue.Queues, q *queue.Queue) error {
				_, err := q.Claim(ctx, queue.Claim{ID: "once"})
				return err
			},
			"find": func(ctx context.Context, _ *queue.Queues, q *queue.Queue) error {
				c, err := q.Find(ctx, queue.MessageID{Partition: first(t, store, spec.Name)})
				if err == nil && c.State != queue.Done {
					err = fmt.Errorf("%+v", c)
				}
				return err
			},
			"stats": func(ctx context.Context, _ *queue.Queues, q *queue.Queue) error {
				_, err := q.Stats(ctx)
				return err
			},
			"counts": func(ctx context.Context, qs *queue.Queues, _ *queue.Queue) error {
				_, _, err := qs.Counts(ctx)
				return err
			},
			"browse": func(ctx context.Context, _ *queue.Queues, q *queue.Queue) error {
				_, err := q.Browse(ctx, queue.Browse{})
				return err
			},
		} {
			qs := start(t, store)
			q := open(t, qs, spec.Name)
			before, began := store.calls(), time.Now()
			if err := do(t.Context(), qs, q); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := store.calls() - before; n > 30 {
				t.Errorf("%s: %d calls of the store, in %v", name, n, time.Since(began))
			}
		}
	})
}

// first returns the first partition of a topic.
func first(t *testing.T, store eventlog.Store, topic string) eventlog.Partition {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	of, err := log.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return of.Partitions[0]
}
