package queue_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// hurried is a store that does something before it commits a purge: others were faster.
type hurried struct {
	eventlog.Store

	mu     sync.Mutex // guards before
	before func()     // nil: nothing
}

func (s *hurried) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	purges := slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "queue/gone/") && p.Value != nil })
	})
	if purges {
		s.mu.Lock()
		before := s.before
		s.before = nil
		s.mu.Unlock()
		if before != nil {
			before()
		}
	}
	return s.Store.Commit(ctx, flush)
}

// Messages that come while a queue is purged stay. What other processes do with them before the
// purge is committed counts: who has a message keeps it, and what was acknowledged, rejected or put
// off does not come back at once.
func TestAPurgeForgetsNothingOfTheMessagesThatStay(t *testing.T) {
	for name, settings := range map[string]queue.Settings{
		"a state for each partition": {Lease: time.Minute},
		"one state":                  {Lease: time.Minute, Concurrency: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				slow := &hurried{Store: store}
				p, other := begin(t, slow, 20*time.Millisecond), begin(t, store, 20*time.Millisecond)
				create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 2, Settings: settings})
				q := open(t, other.Queues, "mail")
				enqueue(t, q, "purged")
				if got := values(claimN(t, q, 1)); got != "purged " {
					t.Fatalf("claimed %q", got)
				}
				slow.before = func() {
					enqueue(t, q, "acked", "rejected", "put off", "kept", "waiting")
					var got []queue.Message
					for len(got) < 5 {
						got = append(got, claimN(t, q, 5)...)
					}
					for _, m := range got {
						var errs []error
						var err error
						switch string(m.Value) {
						case "acked":
							errs, err = q.Ack(t.Context(), m.Receipt)
						case "rejected":
							errs, err = q.Nack(t.Context(), queue.Nack{Reject: true}, m.Receipt)
						case "put off":
							errs, err = q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: 30 * time.Second}, m.Receipt)
						case "waiting":
							q.GiveBack([]queue.Message{m})
						}
						if err != nil || len(errs) > 0 && errs[0] != nil {
							t.Error(errs, err)
						}
					}
				}
				if err := p.Purge(t.Context(), "mail"); err != nil {
					t.Fatal(err)
				}
				q = open(t, other.Queues, "mail")
				claimed := func() (all []string) {
					for range 10 {
						for _, m := range claimN(t, q, 10) {
							all = append(all, string(m.Value))
							if errs, err := q.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
								t.Error(errs, err)
							}
						}
						time.Sleep(100 * time.Millisecond)
					}
					slices.Sort(all)
					return all
				}
				time.Sleep(time.Second) // fake time: the process that purged hears of it, and so does the other
				q = open(t, other.Queues, "mail")
				if got := claimed(); !slices.Equal(got, []string{"waiting"}) {
					t.Errorf("after the purge there are %q", got)
				}
				time.Sleep(31 * time.Second)
				if got := claimed(); !slices.Equal(got, []string{"put off"}) {
					t.Errorf("after the pause there are %q", got)
				}
				time.Sleep(40 * time.Second)
				if got := claimed(); !slices.Equal(got, []string{"kept"}) {
					t.Errorf("after the lease there are %q", got)
				}
			})
		})
	}
}
