package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

// browse lists all messages in a state, page by page.
func browse(t *testing.T, q *queue.Queue, b queue.Browse) (all []queue.Peeked) {
	t.Helper()
	for {
		page, err := q.Browse(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if b.Limit > 0 && len(page.Messages) > b.Limit {
			t.Fatalf("a page has %d messages, and %d are the most", len(page.Messages), b.Limit)
		}
		all = append(all, page.Messages...)
		if page.Next == (queue.MessageID{}) {
			return all
		}
		if page.Next == b.From {
			t.Fatalf("the page after %v begins there again", b.From)
		}
		b.From = page.Next
	}
}

// near allows for the clock of a store, which may be a millisecond ahead.
func near(got, want time.Time) bool { return got.Sub(want).Abs() <= 2*time.Millisecond }

// statesSettings are those of a queue for putInStates.
var statesSettings = queue.Settings{KeepDone: true, Delays: []time.Duration{50 * time.Second, time.Hour}, Lease: 10 * time.Hour}

// putInStates puts 45 messages into the states that checkStates wants, between two times, and
// delayed ones into another queue.
func putInStates(t *testing.T, q, others *queue.Queue) (began, ended time.Time) {
	t.Helper()
	began = time.Now()
	put(t, q, keyed(40)...)
	for i := range 5 {
		later := queue.NewMessage{Value: fmt.Append(nil, "later", i), Delay: time.Duration(i+1) * time.Hour}
		put(t, q, later)
		put(t, others, later)
	}
	ms := take(t, q, 30)
	ack(t, q, ms[:10]...)
	nack(t, q, queue.Nack{Error: "soon"}, ms[10:15]...)
	nack(t, q, queue.Nack{Error: "late", SetDelay: true, Delay: time.Hour}, ms[15:18]...)
	return began, time.Now()
}

// checkStates lists the messages in each state in pages of several sizes: each is listed once, with
// what is known of it.
func checkStates(t *testing.T, q *queue.Queue, began, ended time.Time) {
	t.Helper()
	during := func(at time.Time, after time.Duration) bool {
		return !at.Before(began.Add(after-early)) && !at.After(ended.Add(after+early))
	}
	for state, want := range map[string]struct {
		n     int
		known func(queue.Peeked) bool
	}{
		queue.Ready:   {10, func(p queue.Peeked) bool { return p.Attempt == 0 && p.Until.IsZero() }},
		queue.Claimed: {12, func(p queue.Peeked) bool { return p.Attempt == 1 && p.Worker == "w" && during(p.Until, 10*time.Hour) }},
		queue.Waiting: {5, func(p queue.Peeked) bool { return p.Error == "soon" && during(p.Until, 50*time.Second) }},
		queue.Delayed: {8, func(p queue.Peeked) bool { return p.Until.After(began.Add(time.Hour - time.Second)) }},
		queue.Done:    {10, func(p queue.Peeked) bool { return p.Attempt == 1 && p.Worker == "w" && during(p.Done, 0) }},
		"": {27, func(p queue.Peeked) bool {
			return slices.Contains([]string{queue.Ready, queue.Claimed, queue.Waiting}, p.State)
		}},
	} {
		for _, limit := range []int{0, 1, 3, 1000} {
			seen := make(map[queue.MessageID]bool)
			for _, p := range browse(t, q, queue.Browse{State: state, Limit: limit}) {
				if seen[p.ID] || state != "" && p.State != state || !want.known(p) || !during(p.Time, 0) {
					t.Errorf("by %q, %d a page: %+v", state, limit, p)
				}
				seen[p.ID] = true
			}
			if len(seen) != want.n {
				t.Errorf("by %q, %d a page: %d messages, want %d", state, limit, len(seen), want.n)
			}
		}
	}
}

func TestMessagesAreListedByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 2, Settings: statesSettings})
		others := create(t, qs, queue.Spec{Name: "others"})
		began, ended := putInStates(t, q, others)
		checkStates(t, q, began, ended)
		if done, err := others.Browse(t.Context(), queue.Browse{State: queue.Done}); err != nil || len(done.Messages) > 0 {
			t.Errorf("a queue that keeps no finished messages has %+v (%v)", done, err)
		}
		var invalid *eventlog.InvalidError
		for _, b := range []queue.Browse{{State: "dead"}, {State: "gone"}, {From: queue.MessageID{Partition: 1000}}} {
			if _, err := q.Browse(t.Context(), b); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", b, err)
			}
		}
	})
}

// However many delayed messages others have, a page begins with those of the queue.
func TestAPageOfDelayedMessagesPassesOverThoseOfOthers(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail"})
		others := create(t, qs, queue.Spec{Name: "others"})
		many := slices.Repeat([]queue.NewMessage{{Delay: 24 * time.Hour}}, 1000)
		for range 25 {
			if _, err := others.Enqueue(t.Context(), many...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Delay: 48 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		page, err := q.Browse(t.Context(), queue.Browse{State: queue.Delayed})
		if err != nil || len(page.Messages) != 1 || page.Next != (queue.MessageID{}) {
			t.Errorf("after 25,000 messages of another queue a page has %d messages and goes on at %v (%v)", len(page.Messages), page.Next, err)
		}
		if all := browse(t, q, queue.Browse{State: queue.Delayed}); len(all) != 1 {
			t.Errorf("%d messages are delayed, want 1", len(all))
		}
	})
}

func TestAFinishedMessageSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true}})
		began := time.Now()
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: 5 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		var ids []queue.MessageID
		for i := range 20 {
			enqueue(t, q, fmt.Sprint(i))
			ms := claimN(t, q, 1)
			ids = append(ids, ms[0].ID)
			time.Sleep(time.Second)
			ack(t, q, ms...)
		}
		for i, id := range ids {
			c := find(t, q, id)
			if want := began.Add(time.Duration(i+1) * time.Second); c.State != queue.Done || !near(c.Done, want) || c.Worker != "w" || c.Attempt != 1 {
				t.Errorf("message %d is %+v, want done at %v", i, c, want)
			}
		}
		time.Sleep(10 * time.Minute)
		ms := claimN(t, q, 1)
		if values(ms) != "later " {
			t.Fatalf("the delayed message: %q", values(ms))
		}
		acked := time.Now()
		ack(t, q, ms...)
		if c := find(t, q, ms[0].ID); c.State != queue.Done || !near(c.Done, acked) {
			t.Errorf("a message that was delayed is %+v, want done at %v", c, acked)
		}
	})
}

// handledAreKept handles one of two messages of a queue with KeepDone: the topic of finished
// messages has it alone, with what is known of it.
func handledAreKept(t *testing.T, qs *queue.Queues, q *queue.Queue) {
	t.Helper()
	history := create(t, qs, queue.Spec{Name: "history", Topic: "mail.done"})
	ids := put(t, q, message("rejected"), queue.NewMessage{Key: []byte("k"), Value: []byte("handled"), Headers: []batch.RecordHeader{{Key: "mine", Value: []byte("kept")}}})
	ms := take(t, q, 2)
	nack(t, q, queue.Nack{Reject: true}, ms[0])
	ack(t, q, ms[1])
	kept := take(t, history, 1)[0]
	h := headersOf(kept.Headers)
	same(t, "what is kept", []string{string(kept.Key), string(kept.Value), h["mine"]}, "[k handled kept]")
	same(t, "queue, id, worker, attempts", []string{h[queue.HeaderQueue], h[queue.HeaderID], h[queue.HeaderWorker], h[queue.HeaderAttempts]}, []string{"mail", ids[1].String(), "w", "1"})
	nothing(t, history)
}

func TestHandledMessagesAreKeptInTheTopicDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		handledAreKept(t, qs, create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true}}))
	})
}
