package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/queue"
)

// The tests of the files postgres_*_test.go run in real time, on PostgreSQL: one for each promise
// of docs/queue.md. They wait for messages, and never for a time to pass. A slow machine does not
// make them fail: a lease lasts an hour, or it is meant to end. While nobody else claims, a message
// whose lease has ended can still be acknowledged and extended.

const (
	// limit is how long a test waits for what has to come.
	limit = 30 * time.Second
	// soon is a lease that is meant to end.
	soon = 100 * time.Millisecond
	// early is how much earlier a test may see a message than by the store's clock: both clocks are
	// rounded.
	early = slack * time.Millisecond
)

// database returns the URL of an empty database, for a test that runs beside others.
func database(t *testing.T) string {
	t.Helper()
	if storeUnderTest != "memory" {
		t.Skip("it names its store itself, in one run of the tests")
	}
	t.Parallel()
	return pgtest.URL(t)
}

// serve begins a process on a database. Its stop closes the store, too.
func serve(t *testing.T, url string) process {
	t.Helper()
	opened, err := store.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, opened, 0)
	stop := p.stop
	p.stop = sync.OnceFunc(func() {
		stop()
		if err := opened.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

// serveMail begins a process that creates the queue "mail". It has one partition, so that the order
// of its messages is known, and a lease that does not end in a test.
func serveMail(t *testing.T, url string, settings queue.Settings) (process, *queue.Queue) {
	t.Helper()
	p := serve(t, url)
	settings.Lease = time.Hour
	return p, create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: settings})
}

// servePartitions is serveMail with more partitions.
func servePartitions(t *testing.T, url string, settings queue.Settings) (process, *queue.Queue) {
	t.Helper()
	p := serve(t, url)
	settings.Lease = time.Hour
	return p, create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 3, Settings: settings})
}

// alsoServe begins another process with the queue "mail".
func alsoServe(t *testing.T, url string) (process, *queue.Queue) {
	t.Helper()
	p := serve(t, url)
	return p, open(t, p.Queues, "mail")
}

// put enqueues messages together, so that whoever sees one sees all, and returns their ids.
func put(t *testing.T, q *queue.Queue, messages ...queue.NewMessage) (ids []queue.MessageID) {
	t.Helper()
	out, err := q.Enqueue(t.Context(), messages...)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range out {
		ids = append(ids, m.ID)
	}
	return ids
}

// message makes a message to enqueue.
func message(value string) queue.NewMessage { return queue.NewMessage{Value: []byte(value)} }

// numbers makes messages with the values 0 to n-1.
func numbers(n int) (messages []queue.NewMessage) {
	for i := range n {
		messages = append(messages, message(fmt.Sprint(i)))
	}
	return messages
}

// keyed are numbers with keys, so that each partition has some.
func keyed(n int) []queue.NewMessage {
	messages := numbers(n)
	for i := range messages {
		messages[i].Key = messages[i].Value
	}
	return messages
}

// next waits for n messages.
func next(t *testing.T, q *queue.Queue, n int) (got []queue.Message, err error) {
	for len(got) < n {
		ms, err := q.Claim(t.Context(), queue.Claim{Max: n - len(got), Wait: limit, Worker: "w"})
		if err == nil && len(ms) == 0 {
			err = fmt.Errorf("queue %q gave out %q and nothing more in %v, want %d messages", q.Info().Name, values(got), limit, n)
		}
		if err != nil {
			return nil, err
		}
		got = append(got, ms...)
	}
	return got, nil
}

// take is next for the test's own goroutine.
func take(t *testing.T, q *queue.Queue, n int) []queue.Message {
	t.Helper()
	got, err := next(t, q, n)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// takeSoon claims messages that this process knows, with a lease that ends soon.
func takeSoon(t *testing.T, q *queue.Queue, n int) []queue.Message {
	t.Helper()
	got, err := q.Claim(t.Context(), queue.Claim{Max: n, Lease: soon, Worker: "w"})
	if err != nil || len(got) != n {
		t.Fatalf("claimed %q, %v; want %d messages", values(got), err, n)
	}
	return got
}

// nothing checks that this process has nothing to give out now.
func nothing(t *testing.T, q *queue.Queue) {
	t.Helper()
	if got := claimN(t, q, 10); len(got) > 0 {
		t.Fatalf("claimed %q, want nothing", values(got))
	}
}

// same checks what a test got, in words.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
		t.Fatalf("%s: %s, want %s", what, got, want)
	}
}

func receipts(ms []queue.Message) (all []string) {
	for _, m := range ms {
		all = append(all, m.Receipt)
	}
	return all
}

func ack(t *testing.T, q *queue.Queue, ms ...queue.Message) {
	t.Helper()
	if errs, err := q.Ack(t.Context(), receipts(ms)...); errors.Join(append(errs, err)...) != nil {
		t.Fatalf("ack of %q: %v, %v", values(ms), err, errs)
	}
}

func nack(t *testing.T, q *queue.Queue, n queue.Nack, ms ...queue.Message) {
	t.Helper()
	if errs, err := q.Nack(t.Context(), n, receipts(ms)...); errors.Join(append(errs, err)...) != nil {
		t.Fatalf("nack of %q: %v, %v", values(ms), err, errs)
	}
}

func extend(t *testing.T, q *queue.Queue, lease time.Duration, m queue.Message) {
	t.Helper()
	errs, err := q.Extend(t.Context(), lease, m.Receipt)
	if err := one(t, errs, err); err != nil {
		t.Fatalf("extend the lease of %q: %v", m.Value, err)
	}
}

func find(t *testing.T, q *queue.Queue, id queue.MessageID) queue.Condition {
	t.Helper()
	c, err := q.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func stats(t *testing.T, q *queue.Queue) queue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Oldest = 0
	return s
}

func deadLetters(t *testing.T, q *queue.Queue) []queue.DeadLetter {
	t.Helper()
	letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

// attempts says how often each message was delivered: "0:1 1:2".
func attempts(ms []queue.Message) string {
	var all []string
	for _, m := range ms {
		all = append(all, fmt.Sprintf("%s:%d", m.Value, m.Attempt))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

func headersOf(headers []batch.RecordHeader) map[string]string {
	all := make(map[string]string)
	for _, h := range headers {
		all[h.Key] = string(h.Value)
	}
	return all
}

// work lets four workers of each process handle messages until there were total. Each must come
// once. handle runs while they are claimed.
func work(t *testing.T, total int, handle func([]queue.Message), processes ...*queue.Queue) {
	t.Helper()
	var (
		workers sync.WaitGroup
		mu      sync.Mutex // guards seen
		seen    = make(map[queue.MessageID]bool)
		all     = make(chan struct{})
	)
	note := func(ms []queue.Message) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range ms {
			if seen[m.ID] || m.Attempt != 1 {
				t.Errorf("message %q was given out again, as attempt %d", m.Value, m.Attempt)
			}
			if seen[m.ID] = true; len(seen) == total {
				close(all)
			}
		}
	}
	worker := func(q *queue.Queue) error {
		for {
			ms, err := q.Claim(t.Context(), queue.Claim{Max: 3, Wait: limit, Stop: all})
			if err != nil {
				return err
			}
			if len(ms) == 0 {
				select {
				case <-all:
					return nil
				default:
					return fmt.Errorf("no message came in %v", limit)
				}
			}
			handle(ms)
			errs, err := q.Ack(t.Context(), receipts(ms)...)
			if err := errors.Join(append(errs, err)...); err != nil {
				return err
			}
			note(ms)
		}
	}
	for _, q := range processes {
		for range 4 {
			workers.Go(func() {
				if err := worker(q); err != nil {
					t.Error(err)
				}
			})
		}
	}
	workers.Wait()
	if len(seen) != total {
		t.Fatalf("%d messages were handled, want %d", len(seen), total)
	}
	same(t, "after the work", stats(t, processes[0]), queue.Stats{})
}

func TestOnPostgresClaimedMessagesAreNobodyElsesAndAckedOnesAreDone(t *testing.T) {
	_, q := serveMail(t, database(t), queue.Settings{})
	ids := put(t, q, numbers(4)...)
	first, more := take(t, q, 1), claimN(t, q, 2)
	same(t, "one, and then two", values(first)+values(more), "0 1 2 ")
	same(t, "what is left", values(claimN(t, q, 10)), "3 ")
	nothing(t, q)
	ack(t, q, first...)
	ack(t, q, more...)
	for _, id := range ids[:3] {
		same(t, "a message that is acknowledged", find(t, q, id).State, "done")
	}
	same(t, "the queue", stats(t, q), queue.Stats{Claimed: 1})
}

func TestOnPostgresAClaimWaitsForAMessageOfAnotherProcess(t *testing.T) {
	url := database(t)
	a, _ := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	nothing(t, other)
	got := make(chan []queue.Message, 1)
	go func() {
		ms, err := next(t, other, 1)
		if err != nil {
			t.Error(err)
		}
		got <- ms
	}()
	enqueue(t, open(t, a.Queues, "mail"), "a")
	same(t, "the claim that waited", values(<-got), "a ")
}

func TestOnPostgresTwoProcessesShareAQueueAndNeverAMessage(t *testing.T) {
	url := database(t)
	_, q := servePartitions(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, keyed(200)...)
	work(t, 200, func([]queue.Message) {}, q, other)
}

func TestOnPostgresAStaleReceiptIsRefusedAndChangesNothing(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	id := put(t, q, message("a"))[0]
	old := takeSoon(t, q, 1)[0].Receipt
	young := take(t, other, 1)[0]
	for name, answer := range map[string]func() ([]error, error){
		"ack":    func() ([]error, error) { return q.Ack(t.Context(), old) },
		"nack":   func() ([]error, error) { return q.Nack(t.Context(), queue.Nack{SetDelay: true}, old) },
		"reject": func() ([]error, error) { return q.Nack(t.Context(), queue.Nack{Reject: true}, old) },
		"extend": func() ([]error, error) { return q.Extend(t.Context(), soon, old) },
	} {
		errs, err := answer()
		var stale *queue.StaleReceiptError
		if err := one(t, errs, err); !errors.As(err, &stale) || stale.Done {
			t.Errorf("%s with the older receipt: %v, want that it is stale", name, err)
		}
	}
	if c := find(t, q, id); c.State != "claimed" || c.Attempt != 2 || !c.Until.Equal(young.Until) {
		t.Errorf("after that the message is %+v, want the claim until %v", c, young.Until)
	}
	ack(t, other, young)
	errs, err := q.Ack(t.Context(), young.Receipt)
	var stale *queue.StaleReceiptError
	if err := one(t, errs, err); !errors.As(err, &stale) || !stale.Done {
		t.Errorf("a second ack: %v, want that it is done", err)
	}
}

func TestOnPostgresAnEndedLeaseIsRedeliveredOnceHoweverManyPoll(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, numbers(5)...)
	takeSoon(t, q, 5)
	const pollers = 20
	came := make(chan []queue.Message, pollers)
	for n := range pollers {
		go func() {
			ms, err := next(t, []*queue.Queue{q, other}[n%2], 1)
			if err != nil {
				t.Error(err)
			}
			came <- ms
		}()
	}
	var got []queue.Message
	for range 5 {
		got = append(got, <-came...)
	}
	same(t, "when the leases ended", attempts(got), "[0:2 1:2 2:2 3:2 4:2]")
	put(t, q, numbers(pollers)[5:]...) // one for each who waits: all of them come if nothing else does
	for range pollers - 5 {
		got = append(got, <-came...)
	}
	same(t, "all pollers", attempts(got), "[0:2 10:1 11:1 12:1 13:1 14:1 15:1 16:1 17:1 18:1 19:1 1:2 2:2 3:2 4:2 5:1 6:1 7:1 8:1 9:1]")
	same(t, "the queue", stats(t, q), queue.Stats{Claimed: pollers})
}

func TestOnPostgresAClaimSurvivesARestart(t *testing.T) {
	url := database(t)
	p, q := serveMail(t, url, queue.Settings{})
	put(t, q, numbers(3)...)
	claimed := take(t, q, 2)
	p.stop()
	_, q = alsoServe(t, url)
	same(t, "after the restart", attempts(take(t, q, 1)), "[2:1]")
	ack(t, q, claimed[0])
	nack(t, q, queue.Nack{SetDelay: true}, claimed[1])
	same(t, "what was given back", attempts(take(t, q, 1)), "[1:2]")
	nothing(t, q)
}

// What was claimed by a process that is gone comes back once. What it acknowledged does not.
func TestOnPostgresTheClaimsOfAProcessThatIsGoneComeBackOnce(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	gone, lost := alsoServe(t, url)
	put(t, lost, numbers(10)...)
	claimed := takeSoon(t, lost, 6)
	ack(t, lost, claimed[:3]...)
	gone.stop()
	got := take(t, q, 7)
	same(t, "after it is gone", attempts(got), "[3:2 4:2 5:2 6:1 7:1 8:1 9:1]")
	nothing(t, q)
	ack(t, q, got...)
	same(t, "the queue", stats(t, q), queue.Stats{})
}

func TestOnPostgresAnExtendedLeaseGoesOn(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, message("extended"), message("ended"))
	ms := takeSoon(t, q, 2)
	extend(t, q, time.Hour, ms[0])
	same(t, "the lease that ended", attempts(take(t, other, 1)), "[ended:2]")
	nothing(t, other)
	same(t, "the lease that goes on", find(t, other, ms[0].ID).State, "claimed")
	ack(t, q, ms[0])
}

func TestOnPostgresAFailedMessageComesBackAfterItsPause(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, message("a"))
	first := take(t, q, 1)[0]
	began := time.Now()
	const pause = 500 * time.Millisecond
	nack(t, q, queue.Nack{Error: "refused", SetDelay: true, Delay: pause}, first)
	if c := find(t, other, first.ID); c.Error != "refused" || c.Attempt != 1 {
		t.Errorf("it waits as %+v", c)
	}
	again := take(t, other, 1)[0]
	if passed := time.Since(began); passed < pause-early {
		t.Errorf("it came after %v, before its pause of %v", passed, pause)
	}
	if again.Attempt != 2 || again.ID != first.ID || again.Receipt == first.Receipt {
		t.Errorf("%+v came back as %+v", first, again)
	}
}

func TestOnPostgresTheLastFailureMakesADeadLetter(t *testing.T) {
	delays := []time.Duration{0, 300 * time.Millisecond}
	_, q := serveMail(t, database(t), queue.Settings{Attempts: 3, Delays: delays})
	sent := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	id := put(t, q, queue.NewMessage{Key: []byte("k"), Value: []byte("a"), Time: sent, Headers: []batch.RecordHeader{{Key: "mine", Value: []byte("kept")}}})[0]
	var began time.Time
	for attempt := 1; attempt <= 3; attempt++ {
		m := take(t, q, 1)[0]
		if attempt > 1 && time.Since(began) < delays[attempt-2]-early {
			t.Errorf("attempt %d came %v after the failure", attempt, time.Since(began))
		}
		same(t, "attempt", m.Attempt, attempt)
		began = time.Now()
		nack(t, q, queue.Nack{Error: fmt.Sprint("refused ", attempt)}, m)
	}
	nothing(t, q)
	letters := deadLetters(t, q)
	same(t, "dead letters", len(letters), 1)
	l := letters[0]
	same(t, "reason, attempts, error, worker", []string{l.Reason, l.Attempts, l.Error, l.Worker}, "[attempts 3 refused 3 w]")
	same(t, "key, value and header", string(l.Key)+string(l.Value)+headersOf(l.Headers)["mine"], "kakept")
	if l.ID != id || !l.Enqueued.Equal(sent) || l.Died.Before(began.Add(-limit)) {
		t.Errorf("the dead letter of %v, enqueued %v: %+v", id, sent, l)
	}
	same(t, "the message", find(t, q, id).State, "dead")
}

func TestOnPostgresALeaseThatEndsAfterTheLastAttemptMakesADeadLetter(t *testing.T) {
	p, q := serveMail(t, database(t), queue.Settings{Attempts: 1})
	dead := create(t, p.Queues, queue.Spec{Name: "letters", Topic: "mail.dlt"})
	enqueue(t, q, "a")
	takeSoon(t, q, 1)
	polled := make(chan []queue.Message, 1)
	go func() {
		ms, err := next(t, q, 1)
		if err != nil {
			t.Error(err)
		}
		polled <- ms
	}()
	l := take(t, dead, 1)[0]
	headers := headersOf(l.Headers)
	same(t, "the dead letter", []string{string(l.Value), headers[queue.HeaderReason], headers[queue.HeaderAttempts]}, "[a attempts 1]")
	enqueue(t, q, "b")
	same(t, "who polled meanwhile", attempts(<-polled), "[b:1]")
}

func TestOnPostgresDeadLettersGoBackOnce(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	ids := put(t, q, numbers(5)...)
	nack(t, q, queue.Nack{Reject: true, Error: "no such address"}, take(t, q, 5)...)
	letters := deadLetters(t, q)
	same(t, "dead letters", len(letters), 5)
	same(t, "reason and error", letters[1].Reason+", "+letters[1].Error, "rejected, no such address")
	var moved atomic.Int64
	var both sync.WaitGroup
	for _, q := range []*queue.Queue{q, other} {
		both.Go(func() {
			n, err := q.Redrive(t.Context(), letters[1])
			if err != nil {
				t.Error(err)
			}
			moved.Add(int64(n))
		})
	}
	both.Wait()
	same(t, "redriven by two processes", moved.Load(), 1)
	again := take(t, q, 1)[0]
	if string(again.Value) != "1" || again.Attempt != 1 || again.ID != ids[1] {
		t.Errorf("after the redrive: %+v", again)
	}
	if n, err := q.Discard(t.Context(), letters[0]); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	if n, err := q.RedriveAll(t.Context(), 0); err != nil || n != 3 {
		t.Errorf("redriven %d, %v; want the others", n, err)
	}
	same(t, "the others", attempts(take(t, q, 3)), "[2:1 3:1 4:1]")
	same(t, "the queue", stats(t, q), queue.Stats{Claimed: 4})
}

func TestOnPostgresAPurgedQueueHasNothingButItsDeadLetters(t *testing.T) {
	p, q := serveMail(t, database(t), queue.Settings{})
	put(t, q, message("rejected"), message("claimed"), message("ready"), queue.NewMessage{Value: []byte("delayed"), Delay: time.Second})
	ms := take(t, q, 2)
	nack(t, q, queue.Nack{Reject: true}, ms[0])
	if err := p.Purge(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	q = open(t, p.Queues, "mail")
	errs, err := q.Ack(t.Context(), ms[1].Receipt)
	if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
		t.Errorf("ack of a message that was purged: %v", err)
	}
	put(t, q, message("new"), queue.NewMessage{Value: []byte("last"), Delay: 3 * time.Second}) // due after the delayed one
	same(t, "after the purge", values(take(t, q, 2)), "new last ")
	nothing(t, q)
	same(t, "the queue", stats(t, q), queue.Stats{Claimed: 2, Dead: 1})
}

func TestOnPostgresAPausedQueueGivesNothingOutInAnyProcess(t *testing.T) {
	url := database(t)
	a, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, numbers(3)...)
	first := take(t, other, 1)
	if err := a.Pause(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	nothing(t, other)
	nothing(t, open(t, a.Queues, "mail"))
	ack(t, other, first...)
	enqueue(t, other, "3")
	if err := a.Resume(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	same(t, "after the pause", values(take(t, other, 3)), "1 2 3 ")
}

func TestOnPostgresADelayedMessageComesAtItsTimeAndNotBefore(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	began := time.Now()
	after := map[string]time.Duration{"now": 0, "delay": time.Second, "at": 1500 * time.Millisecond}
	ids := put(t, q, message("now"), queue.NewMessage{Value: []byte("delay"), Delay: after["delay"]}, queue.NewMessage{Value: []byte("at"), At: began.Add(after["at"])})
	came := ""
	for range ids {
		m := take(t, other, 1)[0]
		if passed := time.Since(began); passed < after[string(m.Value)]-early {
			t.Errorf("%q came after %v, want %v", m.Value, passed, after[string(m.Value)])
		}
		if !slices.Contains(ids, m.ID) || m.Attempt != 1 {
			t.Errorf("%q came as %v, attempt %d", m.Value, m.ID, m.Attempt)
		}
		came += string(m.Value) + " "
	}
	if came != "now delay at " && came != "now at delay " {
		t.Errorf("there came %s", came)
	}
	nothing(t, other)
}

func TestOnPostgresADelayedMessageComesThoughItsProcessIsGone(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	gone, other := alsoServe(t, url)
	put(t, other, queue.NewMessage{Value: []byte("later"), Delay: time.Second})
	gone.stop()
	same(t, "the other process", attempts(take(t, q, 1)), "[later:1]")
}
