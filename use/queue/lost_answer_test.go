package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/queue"
)

// losing is a store that loses the answer of the next commit that changes what a queue keeps.
type losing struct {
	eventlog.Store
	next atomic.Bool
}

func (s *losing) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	changes := slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "queue/") && p.Key != "queue/clock" })
	})
	if err == nil && changes && s.next.Swap(false) {
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnsure)
	}
	return out, err
}

// Each answer of the store is lost in turn while a worker rejects, and an operator redrives and
// discards. Whoever does not know what happened asks again, as the documents say: of each message
// there is one, and none is lost.
func TestWhatIsRepeatedAfterALostAnswerHappensOnce(t *testing.T) {
	stores := map[string]func(t *testing.T) eventlog.Store{"store": func(t *testing.T) eventlog.Store { return newStore(t) }}
	if storeUnderTest == "memory" {
		stores["postgres"] = func(t *testing.T) eventlog.Store {
			opened, err := store.Open(t.Context(), pgtest.URL(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			return opened
		}
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { repeatAll(t, open(t)) })
	}
}

func repeatAll(t *testing.T, under eventlog.Store) {
	losing := &losing{Store: under}
	q := create(t, begin(t, losing, time.Millisecond).Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour, Unique: true}})
	// again calls until the answer is known. Every answer of the store is lost at first.
	again := func(what string, call func() error) {
		t.Helper()
		losing.next.Store(true)
		unsure := 0
		for end := time.Now().Add(limit); ; unsure++ {
			err := call()
			if err == nil {
				break
			}
			if !errors.Is(err, eventlog.ErrUnsure) || time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if losing.next.Swap(false) {
			t.Errorf("%s did not change the store", what)
		}
		t.Logf("%s was repeated %d times", what, unsure)
	}
	var ids []queue.MessageID
	for i := range 3 {
		again("enqueue", func() error {
			out, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, i), Unique: fmt.Sprint(i)})
			if err == nil {
				ids = append(ids, out[0].ID)
			}
			return err
		})
	}
	var ms []queue.Message
	again("claim", func() (err error) {
		ms, err = q.Claim(t.Context(), queue.Claim{Max: 10, Worker: "w", ID: "mine"})
		return err
	})
	same(t, "claimed", attempts(ms), "[0:1 1:1 2:1]")
	again("reject", func() error {
		errs, err := q.Nack(t.Context(), queue.Nack{Reject: true, Error: "no"}, receipts(ms)...)
		for _, e := range errs {
			if err == nil && e != nil && !errors.Is(e, queue.ErrStaleReceipt) { // stale: it happened
				err = e
			}
		}
		return err
	})
	var letters []queue.DeadLetter
	waitUntil(t, "the log finds the letters whose answer was lost", func() bool { letters = deadLetters(t, q); return len(letters) > 0 })
	same(t, "dead letters", len(letters), 3)
	redriven := letters[1]
	again("redrive", func() error { _, err := q.Redrive(t.Context(), redriven); return err })
	again("discard", func() error { _, err := q.Discard(t.Context(), letters[0]); return err })
	same(t, "dead letters that are left", len(deadLetters(t, q)), 1)
	back := take(t, q, 1)
	same(t, "what was redriven", []any{string(back[0].Value), back[0].ID, back[0].Attempt}, []any{string(redriven.Value), ids[1], 1})
	nothing(t, q)
	again("extend", func() error {
		errs, err := q.Extend(t.Context(), 10*time.Hour, back[0].Receipt)
		return errors.Join(append(errs, err)...)
	})
	again("ack", func() error {
		errs, err := q.Ack(t.Context(), back[0].Receipt)
		var stale *queue.StaleReceiptError
		if err == nil && errs[0] != nil && !(errors.As(errs[0], &stale) && stale.Done) {
			err = errs[0]
		}
		return err
	})
	same(t, "the queue", stats(t, q), queue.Stats{Dead: 1})
	nothing(t, q)
}
