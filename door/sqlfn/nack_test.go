package sqlfn_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// becomes waits until a message is in a state.
func becomes(t *testing.T, q *queue.Queue, id queue.MessageID, state string) queue.Condition {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		c, err := q.Find(t.Context(), id)
		if err == nil && c.State == state {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("the message is %+v, %v, want it %s", c, err, state)
		}
	}
}

// empties waits until nothing is left between sessions and mover.
func empties(t *testing.T, address string) {
	t.Helper()
	// If a statement of the test still holds a row when the mover comes, the mover tries again
	// after a minute.
	for end := time.Now().Add(2 * time.Minute); pgtest.Value(t, address, `SELECT (SELECT count(*) FROM weir.acked) + (SELECT count(*) FROM weir.nacked) + (SELECT count(*) FROM weir.inbox)`) != "0"; {
		if time.Now().After(end) {
			t.Fatal("rows stay in weir.acked or weir.inbox")
		}
	}
}

func TestANackGivesItsMessageBackIfItsTransactionCommits(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute, Backoff: time.Millisecond, Delays: []time.Duration{time.Millisecond}})
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello')`)
	m := claim(t, q)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.nack($1)`, m.Receipt)
	if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" {
		t.Errorf("before the commit the message is %+v, %v", c, err)
	}
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `SELECT weir.extend($1, '1 minute')`, m.Receipt) // carried after whatever the rollback might have left
	empties(t, address)
	if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" {
		t.Errorf("after the rollback the message is %+v, %v", c, err)
	}
	exec(t, conn, `SELECT weir.nack($1, error => 'refused')`, m.Receipt)
	for _, again := range []string{`weir.nack($1)`, `weir.ack($1)`, `weir.extend($1, '1 minute')`} {
		if _, err := conn.Exec(t.Context(), `SELECT `+again, m.Receipt); stateOf(err) != "WE008" {
			t.Errorf("then %s: %v, want WE008", again, err)
		}
	}
	m = claim(t, q)
	if m.Attempt != 2 {
		t.Errorf("claimed as attempt %d, want 2", m.Attempt)
	}
	exec(t, conn, `SELECT weir.nack($1, 'later', '1 hour')`, m.Receipt)
	if c := becomes(t, q, m.ID, "delayed"); time.Until(c.Until) < 50*time.Minute {
		t.Errorf("it comes again at %v", c.Until)
	}
	empties(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', 'other')`)
	m = claim(t, q)
	exec(t, conn, `SELECT weir.nack($1, 'soon', delay => '0')`, m.Receipt)
	m = claim(t, q)
	began := time.Now()
	exec(t, conn, `SELECT weir.nack($1, 'never', reject => true)`, m.Receipt)
	if c := becomes(t, q, m.ID, "dead"); c.Error != "never" {
		t.Errorf("the dead letter's error is %q", c.Error)
	}
	if took := time.Since(began); took > 8*time.Second { // its own row in weir.acked is no ack
		t.Errorf("it became a dead letter after %v", took)
	}
	empties(t, address)
}

// One transaction nacks and another acks a message, with one receipt.
func TestOfAnAckAndANackOfOneReceiptOneCommits(t *testing.T) {
	for _, c := range []struct{ first, second, end, want, state string }{
		{`weir.nack($1, 'no', '1 minute')`, `weir.ack($1)`, `COMMIT`, "WE008", "waiting"},
		{`weir.ack($1)`, `weir.nack($1)`, `COMMIT`, "WE008", "done"},
		{`weir.nack($1, 'no', '1 minute')`, `weir.ack($1)`, `ROLLBACK`, "<nil>", "done"},
		{`weir.ack($1)`, `weir.nack($1, 'no', '1 minute')`, `ROLLBACK`, "<nil>", "waiting"},
	} {
		t.Run(c.first+" "+c.end, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
			slow, fast := connect(t, address), connect(t, address)
			exec(t, slow, `SELECT weir.enqueue('mail', 'hello')`)
			m := claim(t, q)
			exec(t, slow, `BEGIN`)
			exec(t, slow, `SELECT `+c.first, m.Receipt)
			second := make(chan error)
			go func() {
				_, err := fast.Exec(context.Background(), `SELECT `+c.second, m.Receipt)
				second <- err
			}()
			for end := time.Now().Add(20 * time.Second); pgtest.Value(t, address, `SELECT count(*) FROM pg_locks WHERE NOT granted`) == "0"; {
				if time.Now().After(end) {
					t.Fatal("the second does not wait for the first")
				}
			}
			exec(t, slow, c.end)
			if err := <-second; stateOf(err) != c.want {
				t.Errorf("the second: %v, want %s", err, c.want)
			}
			becomes(t, q, m.ID, c.state)
			empties(t, address)
		})
	}
}

// The lease ended before a mover came, and another worker has the message.
func TestANackThatWasTooLateIsInNobodysWay(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, false, queue.Settings{Lease: time.Hour})
	conn := connect(t, address)
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	late := claim(t, q)
	exec(t, conn, `SELECT weir.nack($1, 'late', reject => true)`, late.Receipt)
	endLease(t, q, late.Receipt)
	m := claim(t, q)
	if m.ID != late.ID || m.Attempt != 2 {
		t.Fatalf("claimed %+v", m)
	}
	tx := connect(t, address)
	exec(t, tx, `BEGIN`)
	exec(t, tx, `SELECT weir.ack($1)`, m.Receipt)
	p, _ := startQueues(t, address, true)
	other := p.create("other", 1, nil)
	exec(t, conn, `SELECT weir.publish('other', 'k', 'v')`) // the mover does not wait for the open transaction
	p.read(other.Name, 1)
	if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" {
		t.Errorf("the message is %+v, %v: what was too late is done nevertheless", c, err)
	}
	exec(t, tx, `COMMIT`)
	isDone(t, q, m.ID)
}

func TestExtendKeepsAClaim(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueues(t, address, true)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello')`)
	m := claim(t, q)
	exec(t, conn, `SELECT weir.extend($1, '1 hour')`, m.Receipt)
	empties(t, address)
	if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" || time.Until(c.Until) < 50*time.Minute {
		t.Errorf("the message is %+v, %v", c, err)
	}
	exec(t, conn, `SELECT weir.extend($1, '100 ms')`, m.Receipt) // a lease may be made shorter
	if again := claim(t, q); again.Attempt != 2 {
		t.Errorf("claimed %+v", again)
	}
	if _, err := conn.Exec(t.Context(), `SELECT weir.extend($1, '1 hour')`, m.Receipt); stateOf(err) != "WE008" {
		t.Errorf("of a claim that is over: %v, want WE008", err)
	}
}

func TestNackAndExtendRefuseWhatTheyCannotMean(t *testing.T) {
	address := pgtest.URL(t)
	_, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Minute})
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.enqueue('mail', 'hello')`)
	m := claim(t, q)
	for _, c := range []struct{ call, want string }{
		{`weir.nack(NULL)`, "22004"},
		{`weir.ack(NULL)`, "22004"},
		{`weir.extend(NULL, '1 minute')`, "22004"},
		{`weir.nack('x')`, "22023"},
		{`weir.nack('R', delay => '-1 s')`, "22023"},
		{`weir.nack('R', delay => '101 years')`, "22023"},
		{`weir.nack('R', delay => '1 s', reject => true)`, "22023"},
		{`weir.nack('R', reject => NULL)`, "22004"},
		{`weir.extend('R', NULL)`, "22004"},
		{`weir.extend('R', '0')`, "22023"},
		{`weir.extend('R', '-1 s')`, "22023"},
		{`weir.extend('R', '1 year')`, "22023"},
	} {
		_, err := conn.Exec(t.Context(), `SELECT `+strings.ReplaceAll(c.call, "'R'", "'"+m.Receipt+"'"))
		if stateOf(err) != c.want {
			t.Errorf("%s: %v, want %s", c.call, err, c.want)
		}
	}
	for _, call := range []string{`weir.nack('R')`, `weir.extend('R', '1 minute')`} {
		exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
		if _, err := conn.Exec(t.Context(), `SELECT `+strings.ReplaceAll(call, "'R'", "'"+m.Receipt+"'")); stateOf(err) != "0A000" {
			t.Errorf("%s with an old snapshot: %v, want 0A000", call, err)
		}
		exec(t, conn, `ROLLBACK`)
	}
	if c, err := q.Find(t.Context(), m.ID); err != nil || c.State != "claimed" || c.Attempt != 1 {
		t.Errorf("the message is %+v, %v", c, err)
	}
}
