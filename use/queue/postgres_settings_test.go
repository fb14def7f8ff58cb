package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/queue"
)

// What a queue's settings promise, and those beside the queue, on PostgreSQL. The helpers are in
// postgres_test.go.

func TestOnPostgresAMessageThatIsTooOldBecomesADeadLetterOrIsDropped(t *testing.T) {
	for name, drop := range map[string]bool{"dead letter": false, "dropped": true} {
		t.Run(name, func(t *testing.T) {
			_, q := serveMail(t, database(t), queue.Settings{TTL: 30 * time.Minute, DropExpired: drop})
			old := put(t, q, queue.NewMessage{Value: []byte("old"), Time: time.Now().Add(-time.Hour)}, message("new"))[0]
			same(t, "claimed", values(claimN(t, q, 10)), "new ")
			nothing(t, q)
			letters := deadLetters(t, q)
			if drop {
				same(t, "dead letters", len(letters), 0)
				same(t, "the message", find(t, q, old).State, "done")
				return
			}
			if len(letters) != 1 || letters[0].ID != old || letters[0].Reason != "expired" {
				t.Errorf("dead letters: %+v", letters)
			}
		})
	}
}

func TestOnPostgresMessagesOfAKeyComeInOrderInAllProcesses(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{KeyOrder: true})
	_, other := alsoServe(t, url)
	for _, text := range []string{"x0", "x1", "y2", "x3"} {
		put(t, q, queue.NewMessage{Key: []byte(text[:1]), Value: []byte(text)})
	}
	x0 := take(t, q, 1)
	same(t, "beside x0", values(take(t, other, 1)), "y2 ")
	nothing(t, q)
	nothing(t, other)
	nack(t, q, queue.Nack{SetDelay: true}, x0...)
	x0 = take(t, other, 1)
	same(t, "after a failure", attempts(x0), "[x0:2]")
	nothing(t, q)
	ack(t, other, x0...)
	x1 := take(t, q, 1)
	same(t, "then", values(x1), "x1 ")
	nothing(t, other)
	ack(t, q, x1...)
	same(t, "then", values(take(t, other, 1)), "x3 ")
}

func TestOnPostgresAUniqueKeyIsTakenUntilItsMessageIsDone(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{Unique: true})
	_, other := alsoServe(t, url)
	// race enqueues messages with one key from both processes. At most one is new.
	race := func() (fresh int, id queue.MessageID) {
		t.Helper()
		var mu sync.Mutex // guards fresh and ids
		ids := map[queue.MessageID]bool{}
		var senders sync.WaitGroup
		for n := range 10 {
			senders.Go(func() {
				out, err := []*queue.Queue{q, other}[n%2].Enqueue(t.Context(), queue.NewMessage{Value: []byte("a"), Unique: "order-1"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[out[0].ID], id = true, out[0].ID
				if !out[0].Repeated {
					fresh++
				}
			})
		}
		senders.Wait()
		same(t, "messages with the key", len(ids), 1)
		return fresh, id
	}
	for _, end := range []func(queue.Message){
		func(m queue.Message) { ack(t, other, m) },
		func(m queue.Message) { nack(t, other, queue.Nack{Reject: true}, m) },
	} {
		fresh, id := race()
		same(t, "new messages, the key being free", fresh, 1)
		m := take(t, other, 1)[0]
		same(t, "the message", m.ID, id)
		fresh, again := race()
		same(t, "new messages while it is claimed, and whose key it is", []any{fresh, again}, []any{0, id})
		nothing(t, other)
		end(m)
	}
}

func TestOnPostgresHigherPrioritiesComeFirstAndNoneIsStarved(t *testing.T) {
	_, q := serveMail(t, database(t), queue.Settings{Priorities: 3})
	for level := range 3 {
		for range 20 {
			put(t, q, queue.NewMessage{Value: []byte(fmt.Sprint(level)), Priority: level})
		}
	}
	var counts [3]int
	for range 20 {
		counts[take(t, q, 1)[0].Value[0]-'0']++
	}
	if counts[2] < 16 || counts[1] < 1 || counts[0] < 1 {
		t.Errorf("of 20 claims %v were of each level, the lowest first", counts)
	}
}

func TestOnPostgresTheConcurrencyLimitHoldsForAllProcesses(t *testing.T) {
	url := database(t)
	a, q := servePartitions(t, url, queue.Settings{})
	_, other := alsoServe(t, url)
	put(t, q, keyed(30)...)
	got := take(t, other, 1)
	if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency = 4; return nil }); err != nil {
		t.Fatal(err)
	}
	q = open(t, a.Queues, "mail")
	got = append(got, take(t, other, 3)...)
	nothing(t, other)
	nothing(t, q)
	ack(t, other, got[0])
	got = append(got, take(t, q, 1)...)
	nothing(t, q)
	nothing(t, other)
	ack(t, q, got[1:]...)
	var live atomic.Int64
	work(t, 25, func(ms []queue.Message) {
		if n := live.Add(int64(len(ms))); n > 4 {
			t.Errorf("%d messages are claimed at a time, and 4 may be", n)
		}
		live.Add(-int64(len(ms)))
	}, q, other)
}

func TestOnPostgresTheRateLimitHoldsForAllProcesses(t *testing.T) {
	url := database(t)
	began := time.Now() // before any process reads the store's clock
	const rate, total = 4, 16
	_, q := servePartitions(t, url, queue.Settings{Rate: rate})
	_, other := alsoServe(t, url)
	put(t, q, keyed(total)...)
	work(t, total, func([]queue.Message) {}, q, other)
	const least = (total - rate) * time.Second / rate // the first second's are given out at once
	if passed := time.Since(began); passed < least-early {
		t.Errorf("%d messages in %v, at %d a second", total, passed, rate)
	}
}

func TestOnPostgresAProcessThatBeginsKnowsTheStateOfEachMessage(t *testing.T) {
	url := database(t)
	_, q := serveMail(t, url, queue.Settings{})
	states := []string{"claimed", "waiting", "delayed", "dead", "done", "ready"}
	var messages []queue.NewMessage
	for _, s := range states {
		messages = append(messages, message(s))
	}
	ids := put(t, q, append(messages, queue.NewMessage{Value: []byte("delayed"), Delay: time.Hour})...)
	ms := take(t, q, 5)
	nack(t, q, queue.Nack{SetDelay: true, Delay: time.Minute, Error: "refused"}, ms[1]) // it waits where it is
	nack(t, q, queue.Nack{SetDelay: true, Delay: time.Hour}, ms[2])                     // it moves to the wheel
	nack(t, q, queue.Nack{Reject: true, Error: "hopeless"}, ms[3])
	ack(t, q, ms[4])

	_, q = alsoServe(t, url)
	text := func(c queue.Condition) string {
		return fmt.Sprintf("%s %q %d %q", c.State, c.Worker, c.Attempt, c.Error)
	}
	for n, want := range []string{`claimed "w" 1 ""`, `waiting "" 1 "refused"`, `delayed "" 1 ""`, `dead "w" 0 "hopeless"`, `done "" 0 ""`, `ready "" 0 ""`, `delayed "" 0 ""`} {
		same(t, "message "+fmt.Sprint(n), text(find(t, q, ids[n])), want)
	}
	same(t, "an id that no message has", find(t, q, queue.MessageID{Partition: ids[0].Partition, Offset: 1000}).State, "unknown")
	var seen []string
	for _, p := range browse(t, q, queue.Browse{}) {
		seen = append(seen, fmt.Sprintf("%s is %s", p.Value, p.State))
	}
	same(t, "what is in the queue", seen, "[claimed is claimed waiting is waiting ready is ready]")
	same(t, "how many", stats(t, q), queue.Stats{Ready: 1, Claimed: 1, Waiting: 1, Delayed: 2, Dead: 1})
}

func TestOnPostgresHandledMessagesAreKeptInTheTopicDone(t *testing.T) {
	p, q := serveMail(t, database(t), queue.Settings{KeepDone: true})
	handledAreKept(t, p.Queues, q)
}

func TestOnPostgresQueuesAndAGroupOfOneTopicDoNotNoticeEachOther(t *testing.T) {
	url := database(t)
	p, mail := serveMail(t, url, queue.Settings{})
	audit := create(t, p.Queues, queue.Spec{Name: "audit", Topic: "mail", Settings: queue.Settings{Lease: time.Hour}})
	put(t, mail, numbers(3)...)
	w := openWeir(t, url)
	read := make(chan string, 100)
	if _, err := w.Consume(t.Context(), weir.Subscription{Group: "mail-readers", Topics: []string{"mail"}, Handler: func(_ context.Context, e weir.Event) error {
		read <- string(e.Value)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	ms := take(t, mail, 3)
	ack(t, mail, ms[0])
	nack(t, mail, queue.Nack{Reject: true}, ms[1])
	for n := range 3 {
		same(t, "what the group reads", waitFor(t, read), n)
	}
	all := take(t, audit, 3)
	same(t, "the other queue", attempts(all), "[0:1 1:1 2:1]")
	ack(t, audit, all...)
	same(t, "the first queue", stats(t, mail), queue.Stats{Claimed: 1, Dead: 1})
	same(t, "the other queue", stats(t, audit), queue.Stats{})
	late := create(t, p.Queues, queue.Spec{Name: "late", Topic: "mail"})
	same(t, "a queue that was created last", attempts(take(t, late, 3)), "[0:1 1:1 2:1]")
}

// The handler of one queue enqueues to another one, and acknowledges, in one transaction. Its first
// attempt rolls back. Under load its lease may end, so that there are more attempts; one commits.
func TestOnPostgresEnqueueAndAckInOneTransactionAreDoneIfItCommits(t *testing.T) {
	url := database(t)
	w := openWeir(t, url)
	for _, name := range []string{"mail", "orders"} {
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: name, Partitions: 1, Settings: weir.QueueSettings{Lease: time.Second, Attempts: -1}}); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	pgtest.Exec(t, url, `CREATE TABLE bills (attempt int)`)
	undone := errors.New("undone")
	_, err = w.Work(t.Context(), weir.WorkOptions{Queue: "orders", Handler: func(ctx context.Context, j weir.Job) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1)`, j.Attempt); err != nil {
				return err
			}
			if err := w.EnqueueTx(ctx, tx, "mail", weir.NewMessage{Value: fmt.Append(nil, j.Attempt)}); err != nil {
				return err
			}
			if err := j.AckTx(ctx, tx); err != nil || j.Attempt > 1 {
				return err
			}
			return undone
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	order, err := w.Enqueue(t.Context(), "orders", weir.NewMessage{Value: []byte("order")})
	if err != nil {
		t.Fatal(err)
	}
	_, mail := alsoServe(t, url)
	got := take(t, mail, 1)[0]
	same(t, "the attempt that enqueued, and all that committed", string(got.Value), pgtest.Value(t, url, `SELECT string_agg(attempt::text, ' ') FROM bills`))
	if string(got.Value) == "1" {
		t.Error("the transaction that rolled back enqueued its message")
	}
	waitUntil(t, "the order is done", func() bool {
		c, err := w.FindMessage(t.Context(), "orders", order[0].ID)
		return err == nil && c.State == "done"
	})
	nothing(t, mail)
	same(t, "transactions that committed", pgtest.Value(t, url, `SELECT count(*) FROM bills`), 1)
}

// openWeir opens a Log of the Go library, until the test ends.
func openWeir(t *testing.T, url string) *weir.Log {
	t.Helper()
	w, err := weir.Open(t.Context(), url, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

func waitFor(t *testing.T, values <-chan string) string {
	t.Helper()
	select {
	case v := <-values:
		return v
	case <-time.After(limit):
		t.Fatalf("nothing came in %v", limit)
		return ""
	}
}

// waitUntil asks until something is true.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", limit, what)
		}
	}
}

// serveAt begins two processes on a database whose clock shows a time.
func serveAt(t *testing.T, url string, at time.Time) (a, b process) {
	t.Helper()
	return serveAhead(t, url, time.Until(at))
}

// serveAhead begins two processes on a database whose clock is ahead of theirs.
func serveAhead(t *testing.T, url string, by time.Duration) (a, b process) {
	t.Helper()
	one := func() process {
		opened, err := store.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		clock := &jumping{Store: opened}
		clock.by.Store(int64(by))
		p := begin(t, clock, 0)
		stop := p.stop
		p.stop = sync.OnceFunc(func() { stop(); _ = opened.Close() })
		t.Cleanup(p.stop)
		return p
	}
	return one(), one()
}

// A schedule is set in one of two processes. All end, and others begin: shortly before the next
// tick, and then long after two more.
func TestOnPostgresATickHasOneMessageAndOfMissedOnesTheLatest(t *testing.T) {
	url := database(t)
	at := time.Date(2040, 5, 1, 11, 59, 59, 0, time.UTC)
	a, b := serveAt(t, url, at.Add(-30*time.Minute)) // far from a tick, however long this takes
	q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}})
	if _, err := q.SetSchedule(t.Context(), queue.Schedule{Name: "hourly", Cron: "0 * * * *", Message: message("tick")}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		begins time.Time
		tick   string
	}{
		{at, "2040-05-01T12:00:00Z"},
		{at.Add(time.Hour), "2040-05-01T13:00:00Z"},
		{at.Add(3*time.Hour + 30*time.Minute), "2040-05-01T15:00:00Z"},
	} {
		a.stop()
		b.stop()
		a, b = serveAt(t, url, c.begins)
		mail := open(t, b.Queues, "mail")
		got, err := next(t, mail, 1)
		if err != nil {
			t.Fatal(err)
		}
		if tick := headersOf(got[0].Headers)[queue.HeaderTick]; tick != c.tick {
			t.Errorf("the message is that of %s, want %s", tick, c.tick)
		}
		errs, err := mail.Ack(t.Context(), got[0].Receipt)
		if one(t, errs, err) != nil {
			t.Fatal(errs)
		}
	}
	topic, err := a.log.Topic(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	held, err := a.log.Bounds(t.Context(), topic.Partitions[0])
	if err != nil {
		t.Fatal(err)
	}
	if held[0].Bounds.Next != 3 {
		t.Errorf("there were %d messages, want 3", held[0].Bounds.Next)
	}
}
