package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/queue"
)

// rewriting is a store that refuses to rewrite batches after left of them, and remembers the
// largest state of a slot of the wheel.
type rewriting struct {
	eventlog.Store
	left    atomic.Int64
	largest atomic.Int64
}

func (s *rewriting) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		if len(e.Replaces) > 0 && s.left.Add(-1) < 0 {
			return nil, fmt.Errorf("commit: %w", eventlog.ErrUnavailable)
		}
		for _, p := range e.Puts {
			if strings.HasPrefix(p.Key, "queue/later/") {
				s.largest.Store(max(s.largest.Load(), int64(len(p.Value))))
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// inWheel counts the records of the wheel by their queue's name and id.
func inWheel(t *testing.T, log *eventlog.Log) map[string]int {
	t.Helper()
	n := make(map[string]int)
	topic, err := log.TopicNow(t.Context(), "__weir_later")
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return n
	}
	if err != nil {
		t.Fatal(err)
	}
	slots, err := log.Bounds(t.Context(), topic.Partitions...)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		for at := slot.Bounds.First; at < slot.Bounds.Next; {
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: slot.Bounds.Partition, From: at, MaxBytes: 1 << 20}}})
			if err != nil || got[0].Err != nil {
				t.Fatal(err, got)
			}
			for _, b := range got[0].Batches {
				for rec, err := range b.Decode() {
					if err != nil {
						t.Fatal(err)
					}
					for _, h := range rec.Headers {
						if h.Key == "weir.queue.to" {
							n[string(h.Value)]++
						}
					}
				}
				at = b.End()
			}
		}
	}
	return n
}

// What a purged or deleted queue has in the wheel leaves it at once, also if the process that does
// so stops half way, and nobody else's does.
func TestDelayedMessagesGoWithTheirQueue(t *testing.T) {
	once(t)
	for name, end := range map[string]func(*queue.Queues, context.Context, string) error{"purge": (*queue.Queues).Purge, "delete": (*queue.Queues).Delete} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const each = 60
				store := &rewriting{Store: newStore(t)}
				store.left.Store(1)
				p := begin(t, store, time.Minute)
				synctest.Wait()
				theirs, mine := create(t, p.Queues, queue.Spec{Name: "theirs"}), create(t, p.Queues, queue.Spec{Name: "mine", Partitions: 1})
				id := theirs.Info().ID
				for i := range each {
					for _, q := range []*queue.Queue{theirs, mine} {
						delayed(t, q, fmt.Sprint(i), 20*time.Minute)
						delayed(t, q, fmt.Sprint("later ", i), 40*time.Minute)
					}
					delayed(t, theirs, "much later", 90*365*24*time.Hour)
				}
				if err := end(p.Queues, t.Context(), "theirs"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				p.stop()
				store.left.Store(1000)
				p = begin(t, store, time.Minute)
				time.Sleep(time.Minute)
				if left := inWheel(t, p.log); left["theirs/"+id] > 0 || left["mine/"+mine.Info().ID] != 2*each {
					t.Errorf("the wheel has %v", left)
				}
				if left := keysOf(t, store, "queue/gone/"); len(left) > 0 {
					t.Errorf("it is not over: %v", left)
				}
				if name == "delete" {
					theirs = create(t, p.Queues, queue.Spec{Name: "theirs"})
				} else {
					theirs = open(t, p.Queues, "theirs")
				}
				delayed(t, theirs, "new", 15*time.Minute)
				mine = open(t, p.Queues, "mine")
				if s, err := mine.Stats(t.Context()); err != nil || s.Delayed != 2*each {
					t.Errorf("before they are due: %+v, %v", s, err)
				}
				store.largest.Store(0)
				time.Sleep(25 * time.Minute)
				come := func() {
					t.Helper()
					ms := claimN(t, mine, 1000)
					if len(ms) != each {
						t.Errorf("%d messages came, want %d", len(ms), each)
					}
					for _, m := range ms {
						if one(t, must(mine.Ack(t.Context(), m.Receipt)), nil) != nil {
							t.Fatal("not acknowledged")
						}
					}
				}
				come()
				if got := values(claimN(t, theirs, 1000)); got != "new " {
					t.Errorf("%q came to the queue of that name", got)
				}
				if n := store.largest.Load(); n > 500 {
					t.Errorf("the state of a slot had %d bytes", n)
				}
				time.Sleep(25 * time.Minute)
				come()
				if left := inWheel(t, p.log); len(left) > 0 {
					t.Errorf("at the end the wheel has %v", left)
				}
				for _, part := range wheelBounds(t, p.log) {
					if part.First < part.Next {
						t.Errorf("a slot is not trimmed: %+v", part)
					}
				}
			})
		})
	}
}

func wheelBounds(t *testing.T, log *eventlog.Log) (all []eventlog.Bounds) {
	t.Helper()
	topic, err := log.TopicNow(t.Context(), "__weir_later")
	if err != nil {
		t.Fatal(err)
	}
	slots, err := log.Bounds(t.Context(), topic.Partitions...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		all = append(all, s.Bounds)
	}
	return all
}

// It is so on every store.
func TestDelayedMessagesGoWithTheirQueueOnEveryStore(t *testing.T) {
	once(t)
	everystore.Run(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		store := reopen(t)
		p := begin(t, store, time.Second)
		theirs, mine := create(t, p.Queues, queue.Spec{Name: "theirs"}), create(t, p.Queues, queue.Spec{Name: "mine"})
		for range 5 {
			for _, q := range []*queue.Queue{theirs, mine} {
				if _, err := q.Enqueue(t.Context(), make([]queue.NewMessage, 1)...); err != nil {
					t.Fatal(err)
				}
				delayed(t, q, "v", 48*time.Hour)
			}
		}
		if err := p.Delete(t.Context(), "theirs"); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the note is gone", func() bool { return len(keysOf(t, store, "queue/gone/")) == 0 })
		want := map[string]int{"mine/" + mine.Info().ID: 5}
		if left := inWheel(t, p.log); fmt.Sprint(left) != fmt.Sprint(want) {
			t.Errorf("the wheel has %v, want %v", left, want)
		}
	})
}
