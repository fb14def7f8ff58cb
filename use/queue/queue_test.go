package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// start runs queues on a store until the test ends.
func start(t *testing.T, store eventlog.Store) *queue.Queues {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return queuesOn(t, log)
}

// queuesOn runs queues on a log until the test ends.
func queuesOn(t *testing.T, log *eventlog.Log) *queue.Queues {
	t.Helper()
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = qs.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return qs
}

func create(t *testing.T, qs *queue.Queues, spec queue.Spec) *queue.Queue {
	t.Helper()
	if _, err := qs.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return open(t, qs, spec.Name)
}

func open(t *testing.T, qs *queue.Queues, name string) *queue.Queue {
	t.Helper()
	q, err := qs.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func enqueue(t *testing.T, q *queue.Queue, values ...string) {
	t.Helper()
	for _, v := range values {
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

func claimN(t *testing.T, q *queue.Queue, n int) []queue.Message {
	t.Helper()
	got, err := q.Claim(t.Context(), queue.Claim{Max: n, Worker: "w"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func values(ms []queue.Message) string {
	s := ""
	for _, m := range ms {
		s += string(m.Value) + " "
	}
	return s
}

func one(t *testing.T, errs []error, err error) error {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(errs) != 1 {
		t.Fatalf("%d results for one receipt", len(errs))
	}
	return errs[0]
}

func TestClaimedMessagesAreNobodyElsesAndAckedOnesNeverComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b", "c")
		first := claimN(t, q, 2)
		if got := values(first); got != "a b " {
			t.Fatalf("claimed %q, want a and b", got)
		}
		if got := values(claimN(t, q, 10)); got != "c " {
			t.Fatalf("claimed %q beside a and b, want c", got)
		}
		if got := values(claimN(t, q, 10)); got != "" {
			t.Fatalf("claimed %q, want nothing", got)
		}
		if errs, err := q.Ack(t.Context(), first[0].Receipt, first[1].Receipt); err != nil || errors.Join(errs...) != nil {
			t.Fatal(err, errs)
		}
		time.Sleep(31 * time.Second)
		again := claimN(t, q, 10)
		if got := values(again); got != "c " || again[0].Attempt != 2 {
			t.Fatalf("after the leases: %q, attempt %v; want c, attempt 2", got, again)
		}
	})
}

func TestAStaleReceiptIsRefusedAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a")
		old := claimN(t, q, 1)[0]
		time.Sleep(31 * time.Second)
		young := claimN(t, q, 1)[0]
		errs, err := q.Ack(t.Context(), old.Receipt)
		if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
			t.Fatalf("ack with the older receipt: %v", err)
		}
		errs, err = q.Nack(t.Context(), queue.Nack{}, old.Receipt)
		if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
			t.Fatalf("nack with the older receipt: %v", err)
		}
		errs, err = q.Ack(t.Context(), young.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		errs, err = q.Ack(t.Context(), young.Receipt)
		var stale *queue.StaleReceiptError
		if err := one(t, errs, err); !errors.As(err, &stale) || !stale.Done {
			t.Fatalf("second ack: %v, want one that says it is done", err)
		}
	})
}

func TestAFailedMessageComesBackAfterItsPauseAndEndsAsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Attempts: 3, Delays: []time.Duration{5 * time.Second}}})
		enqueue(t, q, "a")
		for attempt := 1; attempt <= 3; attempt++ {
			m := claimN(t, q, 1)
			if len(m) != 1 || m[0].Attempt != attempt {
				t.Fatalf("attempt %d: got %v", attempt, m)
			}
			errs, err := q.Nack(t.Context(), queue.Nack{Error: "refused"}, m[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
			if attempt < 3 {
				time.Sleep(4900 * time.Millisecond)
				if got := claimN(t, q, 1); len(got) != 0 {
					t.Fatalf("it came before its pause of 5 s was over: %v", got)
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
		time.Sleep(time.Hour)
		if got := claimN(t, q, 1); len(got) != 0 {
			t.Fatalf("it came a fourth time: %v", got)
		}
		dead := create(t, qs, queue.Spec{Name: "letters", Topic: "mail.dlt"})
		m := claimN(t, dead, 10)
		if len(m) != 1 || string(m[0].Value) != "a" {
			t.Fatalf("dead letters: %v", m)
		}
		headers := map[string]string{}
		for _, h := range m[0].Headers {
			headers[h.Key] = string(h.Value)
		}
		if headers[queue.HeaderReason] != "attempts" || headers[queue.HeaderError] != "refused" || headers[queue.HeaderAttempts] != "3" {
			t.Fatalf("headers of the dead letter: %v", headers)
		}
	})
}

func TestAClaimWaitsForAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 3})
		got := make(chan []queue.Message)
		go func() {
			m, err := q.Claim(t.Context(), queue.Claim{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			got <- m
		}()
		time.Sleep(10 * time.Second)
		began := time.Now()
		enqueue(t, q, "a")
		if m := <-got; len(m) != 1 || time.Since(began) > time.Second {
			t.Fatalf("got %v after %v", m, time.Since(began))
		}
	})
}

func TestMessagesOfAKeyAreGivenOutOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true}})
		for i, k := range []string{"x", "x", "y", "x", "y"} {
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Key: []byte(k), Value: []byte(k + strconv.Itoa(i))}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"x0 y2 ", "x1 y4 ", "x3 ", ""} {
			m := claimN(t, q, 10)
			if got := values(m); got != want {
				t.Fatalf("claimed %q, want %q", got, want)
			}
			for _, m := range m {
				errs, err := q.Ack(t.Context(), m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestTwoProcessesShareAQueueAndNeverAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := start(t, store), start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 2})
		var all []string
		for i := range 200 {
			all = append(all, fmt.Sprint(i))
		}
		enqueue(t, q, all...)
		time.Sleep(30 * time.Second)
		var mu sync.Mutex
		seen := map[string]int{}
		var workers sync.WaitGroup
		for _, qs := range []*queue.Queues{a, b} {
			for range 5 {
				workers.Go(func() {
					q := open(t, qs, "mail")
					for {
						m, err := q.Claim(t.Context(), queue.Claim{Max: 3, Wait: 5 * time.Second})
						if err != nil {
							t.Error(err)
							return
						}
						if len(m) == 0 {
							return
						}
						for _, m := range m {
							mu.Lock()
							seen[string(m.Value)]++
							mu.Unlock()
							if errs, err := q.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
								t.Error(err, errs)
							}
						}
					}
				})
			}
		}
		workers.Wait()
		for _, v := range all {
			if seen[v] != 1 {
				t.Errorf("message %s was given out %d times", v, seen[v])
			}
		}
	})
}

func TestAPausedQueueGivesNothingOutInAnyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := start(t, store), start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b", "c")
		time.Sleep(30 * time.Second)
		other := open(t, b, "mail")
		if got := values(claimN(t, other, 1)); got != "a " {
			t.Fatalf("claimed %q", got)
		}
		if err := a.Pause(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if got := values(claimN(t, other, 1)); got != "" {
			t.Fatalf("the other process gave out %q of a paused queue", got)
		}
		if err := a.Resume(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if got := values(claimN(t, other, 1)); got != "b " {
			t.Fatalf("claimed %q after it went on", got)
		}
		if err := a.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Claim(t.Context(), queue.Claim{}); !errors.Is(err, queue.ErrUnknownQueue) {
			t.Fatalf("claim from a deleted queue: %v", err)
		}
	})
}

func TestADelayedMessageComesWhenItsTimeHasComeAndNotBefore(t *testing.T) {
	for _, delay := range []time.Duration{1500 * time.Millisecond, 90 * time.Second, 5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			qs := start(t, newStore(t))
			q := create(t, qs, queue.Spec{Name: "mail", Partitions: 2})
			ids, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: delay})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(delay - 50*time.Millisecond)
			if got := claimN(t, q, 1); len(got) != 0 {
				t.Fatalf("delay %v: it came too soon: %v", delay, got)
			}
			time.Sleep(300 * time.Millisecond)
			got := claimN(t, q, 1)
			if len(got) != 1 || got[0].ID != ids[0].ID {
				t.Fatalf("delay %v: got %v 250 ms after it was due, want message %v", delay, got, ids[0].ID)
			}
		})
	}
}

func TestALongPauseIsSpentInTheWheelAndCountsAttemptsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Attempts: 3, Delays: []time.Duration{2 * time.Hour}}})
		enqueue(t, q, "a", "b")
		first := claimN(t, q, 1)[0]
		errs, err := q.Nack(t.Context(), queue.Nack{Error: "no"}, first.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + 300*time.Millisecond)
		ms := claimN(t, q, 10)
		if got := values(ms); got != "b a " || ms[1].Attempt != 2 || ms[1].ID != first.ID {
			t.Fatalf("got %q: %+v; want b, and a as attempt 2 of %v", got, ms, first.ID)
		}
	})
}

func TestADelayedMessageOfADeletedQueueReachesNoNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := qs.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q = create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		time.Sleep(2 * time.Minute)
		if got := claimN(t, q, 1); len(got) != 0 {
			t.Fatalf("the new queue got %v", got)
		}
	})
}

func TestDeadLettersGoBackOnceAndAreFoundByTheirID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		sent := time.Now()
		enqueue(t, q, "a", "b")
		time.Sleep(time.Hour)
		ms := claimN(t, q, 2)
		for _, m := range ms {
			errs, err := q.Nack(t.Context(), queue.Nack{Reject: true, Error: "no such address"}, m.Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		}
		if c, err := q.Find(t.Context(), ms[0].ID); err != nil || c.State != "dead" || c.Error != "no such address" {
			t.Fatalf("found %+v, %v", c, err)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Dead != 2 || s.Ready != 0 {
			t.Fatalf("stats %+v, %v", s, err)
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if c, err := q.Find(t.Context(), ms[1].ID); err != nil || len(letters) != 2 || c.Letter != letters[1].Letter {
			t.Fatalf("found %+v, %v, among %d dead letters", c, err, len(letters))
		}
		if err != nil || len(letters) != 2 || letters[0].Reason != "rejected" || letters[0].ID != ms[0].ID {
			t.Fatalf("dead letters %+v, %v", letters, err)
		}
		if l := letters[0]; l.Attempts != "1" || l.Worker != "w" || l.Error != "no such address" || !near(l.Enqueued, sent) || !near(l.Died, sent.Add(time.Hour)) {
			t.Fatalf("the dead letter of a message that was enqueued at %v: %+v", sent, l)
		}
		for want := 1; want >= 0; want-- {
			if n, err := q.Redrive(t.Context(), letters[0]); err != nil || n != want {
				t.Fatalf("redriven %d, %v; want %d", n, err, want)
			}
		}
		again := claimN(t, q, 10)
		if values(again) != "a " || again[0].Attempt != 1 || again[0].ID != ms[0].ID {
			t.Fatalf("after the redrive: %+v", again)
		}
		if c, err := q.Find(t.Context(), ms[0].ID); err != nil || c.State != "claimed" || c.Worker != "w" {
			t.Fatalf("found %+v, %v", c, err)
		}
		if n, err := q.RedriveAll(t.Context(), 0); err != nil || n != 1 {
			t.Fatalf("redriven %d, %v; want the other one", n, err)
		}
	})
}

// Letters bounds the bytes that it returns. Who goes on behind the last letter gets all.
func TestLargeDeadLettersAreFoundAPageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1})
		const messages = 6
		for range messages {
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: make([]byte, 1_000_000)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range claimN(t, q, messages) {
			errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, m.Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		}
		first, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(first) != 4 {
			t.Fatalf("the first page has %d letters, %v", len(first), err)
		}
		second, err := q.DeadLetters(t.Context(), first[3].Letter, 10)
		if err != nil || len(second) != 2 {
			t.Fatalf("the second page has %d letters, %v", len(second), err)
		}
		var ids []queue.MessageID
		for _, l := range append(first, second...) {
			ids = append(ids, l.Letter)
		}
		for at, want := 0, 4; at < messages; at, want = at+want, 2 {
			if found, err := q.Letters(t.Context(), ids[at:]...); err != nil || len(found) != want || found[0].Letter != ids[at] {
				t.Fatalf("of %d letters %d are found at once, want %d: %v", messages-at, len(found), want, err)
			}
		}
	})
}

// The leases of five messages end while many claims of two processes wait: five of these get a
// message each, and the others wait on.
func TestAnEndedLeaseIsRedeliveredOnceHoweverManyPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := start(t, store), start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 2})
		put(t, q, keyed(5)...)
		time.Sleep(30 * time.Second)
		lost := take(t, q, 5)
		began, pollers := time.Now(), []*queue.Queue{q, open(t, b, "mail")}
		const each = 20
		got := make(chan []queue.Message, 2*each)
		for n := range 2 * each {
			go func() {
				ms, err := pollers[n%2].Claim(t.Context(), queue.Claim{Max: 1, Lease: time.Hour, Wait: 4 * time.Minute})
				if err != nil {
					t.Error(err)
				}
				got <- ms
			}()
		}
		time.Sleep(29 * time.Second)
		if len(got) > 0 {
			t.Fatalf("%d claims were answered before the leases ended", len(got))
		}
		var again []queue.Message
		for range 2 * each {
			again = append(again, <-got...)
		}
		if attempts(again) != "[0:2 1:2 2:2 3:2 4:2]" || time.Since(began) != 4*time.Minute {
			t.Errorf("%d claims got %s in %v", 2*each, attempts(again), time.Since(began))
		}
		errs, err := q.Ack(t.Context(), receipts(lost)...)
		for _, e := range errs {
			if !errors.Is(e, queue.ErrStaleReceipt) || err != nil {
				t.Errorf("ack of a claim that was over: %v, %v", e, err)
			}
		}
	})
}

func TestAPurgedQueueHasNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 2})
		enqueue(t, q, "a", "b", "c")
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		old := claimN(t, q, 1)[0]
		if err := qs.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q = open(t, qs, "mail")
		time.Sleep(time.Hour)
		if got := claimN(t, q, 10); len(got) != 0 {
			t.Fatalf("a purged queue gave out %v", got)
		}
		errs, err := q.Ack(t.Context(), old.Receipt)
		if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
			t.Fatalf("ack of a message that was purged: %v", err)
		}
		enqueue(t, q, "d")
		if got := values(claimN(t, q, 10)); got != "d " {
			t.Fatalf("claimed %q", got)
		}
	})
}

func TestAUniqueKeyIsTakenUntilItsMessageIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 2, Settings: queue.Settings{Unique: true, Attempts: 1}})
		put := func(keys ...string) []queue.Enqueued {
			t.Helper()
			var ms []queue.NewMessage
			for _, k := range keys {
				ms = append(ms, queue.NewMessage{Value: []byte(k), Unique: k})
			}
			out, err := q.Enqueue(t.Context(), ms...)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		first := put("x", "y", "x")
		if first[0].Repeated || first[1].Repeated || !first[2].Repeated || first[2].ID != first[0].ID {
			t.Fatalf("three messages of two keys: %+v", first)
		}
		if again := put("x"); !again[0].Repeated || again[0].ID != first[0].ID {
			t.Fatalf("the key is taken: %+v", again)
		}
		ms := claimN(t, q, 10)
		if len(ms) != 2 {
			t.Fatalf("claimed %q", values(ms))
		}
		if again := put("x"); !again[0].Repeated {
			t.Fatal("a claimed message's key is free")
		}
		for _, m := range ms {
			if string(m.Value) == "x" {
				errs, err := q.Ack(t.Context(), m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			} else if errs, err := q.Nack(t.Context(), queue.Nack{}, m.Receipt); one(t, errs, err) != nil {
				t.Fatal(errs)
			}
		}
		for _, k := range []string{"x", "y"} {
			if again := put(k); again[0].Repeated {
				t.Fatalf("the key %s of a message that is done, or dead, is still taken", k)
			}
		}
	})
}

func TestLimitsHoldForAllProcessesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := start(t, store), start(t, store)
		q := create(t, a, queue.Spec{Name: "mail", Partitions: 3})
		for i := range 40 {
			enqueue(t, q, fmt.Sprint(i))
		}
		if got := claimN(t, q, 1); len(got) != 1 {
			t.Fatal("nothing to claim before the limits")
		}
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency = 4; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		time.Sleep(time.Second) // the claim from before has ended
		q, other := open(t, a, "mail"), open(t, b, "mail")
		got := append(claimN(t, q, 3), claimN(t, other, 3)...)
		if len(got) != 4 {
			t.Fatalf("%d claims are out, and the limit is 4", len(got))
		}
		errs, err := other.Ack(t.Context(), got[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if more := claimN(t, q, 3); len(more) != 1 {
			t.Fatalf("after one ack %d more were given out, want 1", len(more))
		}
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency, s.Rate = 0, 2; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		q, other = open(t, a, "mail"), open(t, b, "mail")
		began, n := time.Now(), 0
		for turn := 0; time.Since(began) < 10*time.Second; turn++ {
			ms, err := []*queue.Queue{q, other}[turn%2].Claim(t.Context(), queue.Claim{Wait: time.Second, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			n += len(ms)
		}
		if n < 19 || n > 23 {
			t.Fatalf("%d claims in 10 s at 2 a second and a burst of 2", n)
		}
	})
}

func TestHigherPrioritiesComeFirstAndNoneIsStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Priorities: 3}})
		for i := range 60 {
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(fmt.Sprint(i % 3)), Priority: i % 3}); err != nil {
				t.Fatal(err)
			}
		}
		var counts [3]int
		for range 20 {
			m := claimN(t, q, 1)
			counts[m[0].Value[0]-'0']++
		}
		if counts[2] < 16 || counts[1] < 1 || counts[0] < 1 {
			t.Fatalf("of 20 claims %v were of each level, the lowest first", counts)
		}
	})
}
