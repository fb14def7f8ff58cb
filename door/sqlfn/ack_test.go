package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// startQueues is start, with a queue "mail" of one partition. Leases take an hour, so that none
// ends before endLease ends it.
func startQueues(t *testing.T, address string, moves bool) (*process, *queue.Queue) {
	return startQueuesWith(t, address, moves, queue.Settings{Lease: time.Hour, Unique: true})
}

// endLease makes a claim's lease end at once.
func endLease(t *testing.T, q *queue.Queue, receipts ...string) {
	t.Helper()
	errs, err := q.Extend(t.Context(), queue.LeaseMin, receipts...)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

func startQueuesWith(t *testing.T, address string, moves bool, settings queue.Settings) (*process, *queue.Queue) {
	t.Helper()
	return startQueue(t, address, moves, queue.Spec{Name: "mail", Partitions: 1, Settings: settings})
}

func startQueue(t *testing.T, address string, moves bool, spec queue.Spec) (*process, *queue.Queue) {
	t.Helper()
	p := open(t, address)
	qs := p.runQueues(t, moves)
	_, err := qs.Create(t.Context(), spec)
	if err != nil && !errors.Is(err, queue.ErrQueueExists) {
		t.Fatal(err)
	}
	q, err := qs.Open(t.Context(), spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	return p, q
}

// runQueues runs the log, its queues and, if moves is set, the mover, until the test ends.
func (p *process) runQueues(t *testing.T, moves bool) *queue.Queues {
	qs := queue.New(p.log, publish.New(p.log, publish.Config{}), queue.Config{Beside: p.door})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { p.log.Run(ctx) })
	all.Go(func() { qs.Run(ctx) })
	if moves {
		all.Go(func() {
			sqlfn.New(p.log, p.door, sqlfn.Config{Queues: qs, Streams: stream.New(p.log, stream.Config{})}).Run(ctx)
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		p.store.Close()
	})
	return qs
}

// claim waits for one message.
func claim(t *testing.T, q *queue.Queue) queue.Message {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		got, err := q.Claim(t.Context(), queue.Claim{Wait: 5 * time.Second})
		if err != nil && !errors.Is(err, queue.ErrUnknownQueue) {
			t.Fatal(err)
		}
		if len(got) > 0 {
			return got[0]
		}
	}
	t.Fatal("nothing can be claimed")
	return queue.Message{}
}

// isDone waits until a message is.
func isDone(t *testing.T, q *queue.Queue, id queue.MessageID) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := q.Find(t.Context(), id)
		if err == nil && c.State == "done" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the message is %+v, %v", c, err)
		}
	}
}

func stateOf(err error) string {
	var reported *pgconn.PgError
	if errors.As(err, &reported) {
		return reported.Code
	}
	return fmt.Sprint(err)
}

func TestAnAckIsDoneIfItsTransactionCommits(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn := connect(t, address)
	exec(t, conn, `CREATE TABLE done (id text)`)
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello', key => 'k', headers => '{"a": "b"}', unique_key => 'u')`)
	m := claim(t, q)
	if string(m.Value) != "hello" || string(m.Key) != "k" {
		t.Fatalf("claimed %+v", m)
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.ack($1)`, m.Receipt)
	exec(t, conn, `ROLLBACK`)
	endLease(t, q, m.Receipt)
	again := claim(t, q)
	if again.ID != m.ID || again.Attempt != 2 {
		t.Fatalf("after a rollback %+v is claimed", again)
	}
	for _, receipt := range []string{m.Receipt, again.Receipt[:len(again.Receipt)-8] + "00000000", strings.Replace(again.Receipt, q.Info().ID, "0123456789abcdef", 1)} {
		if _, err := conn.Exec(t.Context(), `SELECT weir.ack($1)`, receipt); stateOf(err) != "WE008" {
			t.Errorf("ack of receipt %s: %v, want WE008", receipt, err)
		}
	}
	for _, receipt := range []string{"", "x", "1.2.3.4.5", again.Receipt + "'"} {
		if _, err := conn.Exec(t.Context(), `SELECT weir.ack($1)`, receipt); stateOf(err) != "22023" {
			t.Errorf("ack of %q: %v, want 22023", receipt, err)
		}
	}
	exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	if _, err := conn.Exec(t.Context(), `SELECT weir.ack($1)`, again.Receipt); stateOf(err) != "0A000" {
		t.Errorf("ack with an old snapshot: %v", err)
	}
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `INSERT INTO done VALUES ('hello')`)
	exec(t, conn, `SELECT weir.ack($1)`, again.Receipt)
	exec(t, conn, `COMMIT`)
	isDone(t, q, m.ID)
	if _, err := conn.Exec(t.Context(), `SELECT weir.ack($1)`, again.Receipt); stateOf(err) != "WE008" {
		t.Errorf("a second ack: %v, want WE008", err)
	}
	for _, table := range []string{"weir.acked", "weir.inbox"} {
		for end := time.Now().Add(20 * time.Second); pgtest.Value(t, address, `SELECT count(*) FROM `+table) != "0"; {
			if time.Now().After(end) {
				t.Fatalf("rows stay in %s", table)
			}
		}
	}
	exec(t, conn, `SELECT weir.enqueue('mail', 'again', unique_key => 'u')`) // the key is free
	if m := claim(t, q); string(m.Value) != "again" {
		t.Errorf("then %q is claimed", m.Value)
	}
}

// Two workers have one message, as the lease of the first ended: one of their transactions commits.
func TestOfTwoTransactionsThatAckAMessageOneCommits(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	slow, fast := connect(t, address), connect(t, address)
	exec(t, slow, `SELECT weir.enqueue('mail', 'hello')`)
	m := claim(t, q)
	exec(t, slow, `BEGIN`)
	exec(t, slow, `SELECT weir.ack($1)`, m.Receipt)
	endLease(t, q, m.Receipt)
	again := claim(t, q) // the first has not committed
	if again.ID != m.ID {
		t.Fatalf("claimed %+v", again)
	}
	refused := make(chan error)
	go func() {
		_, err := fast.Exec(context.Background(), `SELECT weir.ack($1)`, again.Receipt)
		refused <- err
	}()
	for end := time.Now().Add(20 * time.Second); pgtest.Value(t, address, `SELECT count(*) FROM pg_locks WHERE NOT granted`) == "0"; {
		if time.Now().After(end) {
			t.Fatal("the second does not wait for the first")
		}
	}
	exec(t, slow, `COMMIT`)
	if err := <-refused; stateOf(err) != "WE008" {
		t.Errorf("the second: %v, want WE008", err)
	}
	isDone(t, q, m.ID)
	if got, err := q.Claim(t.Context(), queue.Claim{Wait: 2 * time.Second}); err != nil || len(got) > 0 {
		t.Errorf("then %d messages are claimed, %v", len(got), err)
	}
}

// An ack that committed holds, although no mover has carried it when the lease ends.
func TestAMessageWhoseAckWaitsIsNotClaimedAgain(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, false)
	conn := connect(t, address)
	var receipts []string
	var first queue.MessageID
	for _, v := range []string{"hello", "other"} {
		at, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(v)})
		if err != nil {
			t.Fatal(err)
		}
		if len(receipts) == 0 {
			first = at[0].ID
		}
		receipts = append(receipts, claim(t, q).Receipt)
	}
	exec(t, conn, `SELECT weir.ack($1)`, receipts[0])
	endLease(t, q, receipts...)
	if m := claim(t, q); string(m.Value) != "other" {
		t.Errorf("when the leases have ended %q is claimed", m.Value)
	}
	if got, err := q.Claim(t.Context(), queue.Claim{Max: 10}); err != nil || len(got) > 0 {
		t.Errorf("beside it %d messages are claimed, %v", len(got), err)
	}
	_, elsewhere := startQueues(t, address, true)
	isDone(t, elsewhere, first)
}

// A transaction has acknowledged a message, and is open. Its lease has ended, and whoever has the
// message now cannot tell. The message stays where it is, so that the commit ends it.
func TestAMessageThatAnOpenTransactionAcknowledgedStaysInItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		leave    func(*testing.T, *queue.Queue, queue.MessageID)
	}{
		"its last attempt's lease ended": {1, isTakenOver},
		"another worker rejects it": {5, func(t *testing.T, q *queue.Queue, id queue.MessageID) {
			nack(t, q, queue.Nack{Reject: true}, claim(t, q).Receipt)
		}},
		"another worker gives it back for long": {5, func(t *testing.T, q *queue.Queue, id queue.MessageID) {
			nack(t, q, queue.Nack{SetDelay: true, Delay: time.Hour}, claim(t, q).Receipt)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			p, q := startQueuesWith(t, address, false, queue.Settings{Lease: time.Hour, Attempts: c.attempts})
			at, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")})
			if err != nil {
				t.Fatal(err)
			}
			tx := connect(t, address)
			exec(t, tx, `BEGIN`)
			m := claim(t, q)
			exec(t, tx, `SELECT weir.ack($1)`, m.Receipt)
			endLease(t, q, m.Receipt)
			c.leave(t, q, at[0].ID)
			exec(t, tx, `COMMIT`)
			_, elsewhere := startQueues(t, address, true)
			isDone(t, elsewhere, at[0].ID)
			for _, topic := range []string{"mail.dlt", "__weir_later"} {
				to, err := p.log.Topic(t.Context(), topic)
				if errors.Is(err, eventlog.ErrUnknownTopic) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				held, err := p.log.Bounds(t.Context(), to.Partitions...)
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range held {
					if h.Bounds.Next > 0 {
						t.Errorf("the message is done, and topic %s has a copy", topic)
					}
				}
			}
		})
	}
}

// Weir claims a message itself before it becomes a dead letter. From then on its worker cannot
// acknowledge it, and so have its work done twice.
func TestAMessageThatIsTakenOverCannotBeAcknowledged(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, false, queue.Settings{Lease: time.Hour, Attempts: 1})
	at, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	m := claim(t, q)
	tx, late := connect(t, address), connect(t, address)
	exec(t, tx, `BEGIN`)
	exec(t, tx, `SELECT weir.ack($1)`, m.Receipt)
	endLease(t, q, m.Receipt)
	isTakenOver(t, q, at[0].ID)
	exec(t, tx, `ROLLBACK`)
	if _, err := late.Exec(t.Context(), `SELECT weir.ack($1)`, m.Receipt); stateOf(err) != "WE008" {
		t.Errorf("the ack of a message that weir has: %v", err)
	}
}

// isTakenOver waits until weir has claimed a message whose last lease ended. Until somebody asks
// for messages it counts as ready.
func isTakenOver(t *testing.T, q *queue.Queue, id queue.MessageID) {
	t.Helper()
	began, err := q.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if got, err := q.Claim(t.Context(), queue.Claim{Wait: 50 * time.Millisecond}); err != nil || len(got) > 0 {
			t.Fatal(got, err)
		}
		c, err := q.Find(t.Context(), id)
		if err != nil || c.State != "claimed" && c.State != "ready" || time.Now().After(end) {
			t.Fatalf("the message is %+v, %v", c, err)
		}
		if c.State == "claimed" && c.Until.After(began.Until) {
			return
		}
	}
}

func nack(t *testing.T, q *queue.Queue, n queue.Nack, receipt string) {
	t.Helper()
	if errs, err := q.Nack(t.Context(), n, receipt); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
}
