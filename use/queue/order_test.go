package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// With a limit all partitions share one state, and with priorities there are more of them. Each has
// keys of its own.
func TestOrderByKeyHoldsInSeveralPartitions(t *testing.T) {
	for name, settings := range map[string]queue.Settings{
		"limited":                 {Concurrency: 1000},
		"with a rate":             {Rate: 1e6},
		"limited with priorities": {Concurrency: 1000, Priorities: 3},
		"without limits":          {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings.KeyOrder, settings.Lease = true, time.Hour
				q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 4, Settings: settings})
				const total = 200
				for i := range total {
					// Each key has one priority: order is within a level. The pattern differs from
					// partition to partition.
					n := (i*i + i/3) % 13
					m := queue.NewMessage{Key: fmt.Appendf(nil, "k%d", n), Value: fmt.Appendf(nil, "%03d", i), Priority: n % max(settings.Priorities, 1)}
					if _, err := q.Enqueue(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				last, live := make(map[string]string), make(map[string]string) // by key
				done := 0
				for range 10 * total {
					got := claimN(t, q, 3)
					if len(got) == 0 {
						break
					}
					for i, m := range got {
						key, value := string(m.Key), string(m.Value)
						if other := live[key]; other != "" {
							t.Fatalf("key %s: %s is claimed while %s is", key, value, other)
						}
						if value < last[key] {
							t.Fatalf("key %s: %s comes after %s", key, value, last[key])
						}
						last[key], live[key] = value, value
						if i == 1 { // it stays claimed until nothing else is free
							continue
						}
						errs, err := q.Ack(t.Context(), m.Receipt)
						if err := one(t, errs, err); err != nil {
							t.Fatal(err)
						}
						delete(live, key)
						done++
					}
				}
				if len(live)+done == 0 || done < 13 {
					t.Fatalf("%d are done, and %d claimed", done, len(live))
				}
			})
		})
	}
}

// The keys of messages that the store lost are not those of the messages that have their offsets
// now.
func TestOrderByKeyIsNotThatOfMessagesTheStoreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := begin(t, store, time.Second)
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true, Lease: time.Hour}})
		put := func(keys ...string) {
			for _, key := range keys {
				if _, err := q.Enqueue(t.Context(), queue.NewMessage{Key: []byte(key), Value: []byte(key)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		restore := store.Backup()
		put("a", "b", "c")
		if got := values(claimN(t, q, 2)); got != "a b " {
			t.Fatalf("claimed %q", got)
		}
		restore(false)
		time.Sleep(3 * time.Second) // three polls
		put("x", "x", "y")
		if got := values(claimN(t, q, 10)); got != "x y " {
			t.Errorf("claimed %q, want x once, and y", got)
		}
	})
}
