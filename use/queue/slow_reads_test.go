package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// slowOnce is a store that takes long to read records, once.
type slowOnce struct {
	eventlog.Store
	takes atomic.Int64
}

func (s *slowOnce) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	time.Sleep(time.Duration(s.takes.Swap(0)))
	return s.Store.Read(ctx, spans, maxBytes)
}

// The messages are claimed, and their leases end while their records are read: other workers may
// have them. No worker had them before, so that is no attempt.
func TestAClaimHandsOutNoLeaseThatEndedWhileItsMessagesWereRead(t *testing.T) {
	for name, c := range map[string]struct {
		claim   queue.Claim
		earlier bool // its ID was used before, and the answer was lost
		attempt int
	}{
		"no wait":            {queue.Claim{Max: 10}, false, 1},
		"wait":               {queue.Claim{Max: 10, Wait: time.Minute}, false, 1},
		"repeatable":         {queue.Claim{Max: 10, Worker: "w", ID: "1"}, false, 1},
		"repeated":           {queue.Claim{Max: 10, Worker: "w", ID: "1"}, true, 2},
		"repeated, and wait": {queue.Claim{Max: 10, Worker: "w", ID: "1", Wait: time.Minute}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				q := create(t, begin(t, store, time.Hour).Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: 2 * time.Second}})
				enqueue(t, q, "a", "b")
				if c.earlier {
					if _, err := q.Claim(t.Context(), c.claim); err != nil {
						t.Fatal(err)
					}
				}
				slow := &slowOnce{Store: store}
				other := open(t, begin(t, slow, time.Hour).Queues, "mail")
				synctest.Wait()
				slow.takes.Store(int64(3 * time.Second))
				began := time.Now()
				got, err := other.Claim(t.Context(), c.claim)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 3*time.Second {
					t.Fatalf("nothing was slow: %v", took)
				}
				if values(got) != "a b " {
					t.Fatalf("claimed %q", values(got))
				}
				for _, m := range got {
					if left := time.Until(m.Until); left <= 0 || m.Attempt != c.attempt {
						t.Errorf("%s is handed out with a lease that has %v left, as attempt %d, want %d", m.Value, left, m.Attempt, c.attempt)
					}
				}
			})
		})
	}
}
