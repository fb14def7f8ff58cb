package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Pauses and leases by the store's clock, on PostgreSQL. The helpers are in postgres_test.go and
// postgres_settings_test.go.

// With each failed attempt the longest pause doubles, up to a bound, and each pause is random. For
// each attempt other processes begin, when all pauses are over.
func TestOnPostgresPausesDoubleUpToABoundAndAreRandom(t *testing.T) {
	url := database(t)
	const messages = 200
	settings := queue.Settings{Attempts: -1, Backoff: 10 * time.Second, BackoffMax: 40 * time.Second, Lease: 10 * time.Minute}
	var ahead time.Duration // of the store's clock
	for attempt, longest := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 40 * time.Second} {
		p, other := serveAhead(t, url, ahead)
		if attempt == 0 {
			put(t, create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: settings}), numbers(messages)...)
		}
		q := open(t, p.Queues, "mail")
		ms := take(t, q, messages)
		same(t, "attempt", ms[0].Attempt, attempt+1)
		began := time.Now().Add(ahead)
		nack(t, q, queue.Nack{Error: "refused"}, ms...)
		ended := time.Now().Add(ahead)
		waits := browse(t, open(t, other.Queues, "mail"), queue.Browse{Limit: 1000})
		same(t, "messages that wait", len(waits), messages)
		var soon, late int
		for _, m := range waits {
			switch {
			case m.Until.After(ended.Add(longest + early)):
				t.Errorf("after attempt %d message %s waits until %v, more than %v after %v", attempt+1, m.Value, m.Until, longest, ended)
			case m.Until.Before(began.Add(longest / 2)): // also one that is ready by now: its Until is zero
				soon++
			default:
				late++
			}
		}
		if soon < messages/4 || late < messages/4 { // half of each, and by chance this few once in 10^12
			t.Errorf("after attempt %d %d of the pauses are in the first half of %v, and %d in the second", attempt+1, soon, longest, late)
		}
		p.stop()
		other.stop()
		ahead += time.Minute
	}
}

// The store's clock is an hour ahead of that of the processes, or behind: a lease ends by the
// store's, in all of them.
func TestOnPostgresALeaseEndsByTheStoresClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			a, b := serveAhead(t, database(t), ahead)
			q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: 30 * time.Minute}})
			put(t, q, message("long"), message("short"))
			began := time.Now().Add(ahead)
			long := take(t, q, 1)[0]
			if end := began.Add(30 * time.Minute); long.Until.Before(end.Add(-limit)) || long.Until.After(end.Add(limit)) {
				t.Errorf("a lease of half an hour ends at %v, and it began at %v, by the store's clock", long.Until, began)
			}
			short := takeSoon(t, q, 1)[0]
			other := open(t, b.Queues, "mail")
			again := take(t, other, 1)
			same(t, "the lease that ended", attempts(again), "[short:2]")
			nothing(t, other)
			nothing(t, q)
			same(t, "the lease that goes on", find(t, other, long.ID).State, queue.Claimed)
			errs, err := q.Ack(t.Context(), short.Receipt)
			if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
				t.Errorf("ack of the claim that was over: %v", err)
			}
			ack(t, q, long)
			ack(t, other, again...)
			same(t, "the queue", stats(t, q), queue.Stats{})
		})
	}
}
