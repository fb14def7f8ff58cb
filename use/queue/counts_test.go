package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Those that ask for one queue and for all are told the same.
func TestCountsOfAllQueuesAreThoseOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		for _, spec := range []queue.Spec{{Name: "bills"}, {Name: "mail", Settings: queue.Settings{Concurrency: 10, Priorities: 2, Attempts: 2}}} {
			q := create(t, qs, spec)
			enqueue(t, q, "dead", "waits", "claimed")
			ms := claimN(t, q, 3)
			for i, n := range []queue.Nack{{Reject: true}, {SetDelay: true, Delay: time.Minute}} {
				errs, err := q.Nack(t.Context(), n, ms[i].Receipt)
				if one(t, errs, err) != nil {
					t.Fatal(errs)
				}
			}
			time.Sleep(10 * time.Second)
			enqueue(t, q, "ready", "ready", "ready")
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Delay: time.Hour}, queue.NewMessage{Delay: 24 * time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		counts, delayed, err := qs.Counts(t.Context())
		if err != nil || len(counts) != 2 || counts[0].Name != "bills" || counts[1].Name != "mail" || delayed != 4 {
			t.Fatalf("%+v, %d delayed, %v", counts, delayed, err)
		}
		for _, c := range counts {
			want, err := open(t, qs, c.Name).Stats(t.Context())
			if err != nil || c.Stats != want {
				t.Errorf("%s: %+v among all, %+v alone, %v", c.Name, c.Stats, want, err)
			}
			if c.Ready != 3 || c.Dead != 1 || c.Claimed != 1 || c.Waiting != 1 || c.Delayed != 2 || c.Oldest < 5*time.Second {
				t.Errorf("%s: %+v", c.Name, c.Stats)
			}
		}
	})
}
