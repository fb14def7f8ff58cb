package weir_test

// Who was taken for dead, and is not: it goes on with its own transaction on the database, which it
// can reach although its log cannot.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// relay stands between a Log and its database, and can be cut.
type relay struct {
	to    string
	mu    sync.Mutex // guards what follows
	cut   bool
	conns []net.Conn
}

// newRelay returns a relay to the database at an address, and the address through it.
func newRelay(t *testing.T, address string) (*relay, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		t.Skipf("the PostgreSQL for the tests is not reached by TCP (%v)", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: u.Host}
	var work sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		r.set(true)
		work.Wait()
	})
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { r.carry(conn) })
		}
	})
	u.Host = listener.Addr().String()
	return r, u.String()
}

func (r *relay) carry(conn net.Conn) {
	defer conn.Close()
	other, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer other.Close()
	r.mu.Lock()
	cut := r.cut
	r.conns = append(r.conns, conn, other)
	r.mu.Unlock()
	if cut {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(other, conn)
		other.Close()
	})
	_, _ = io.Copy(conn, other)
	conn.Close()
	up.Wait()
}

// set cuts the relay, or mends it.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// clerk is a BatchHandler that writes a bill for each event and commits the batch with them. It
// waits for a word in between, whatever its context says.
type clerk struct {
	name   string
	db     *sql.DB
	begun  chan []weir.Event
	goOn   chan struct{}
	answer chan error // of CommitSQLTx
}

func newClerk(t *testing.T, name, url string) *clerk {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &clerk{name: name, db: db, begun: make(chan []weir.Event, 10), goOn: make(chan struct{}, 10), answer: make(chan error, 10)}
}

func (c *clerk) handle(ctx context.Context, events []weir.Event) error {
	ctx = context.WithoutCancel(ctx)
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, e := range events {
		if _, err := tx.ExecContext(ctx, `INSERT INTO bills VALUES ($1, $2)`, string(e.Value), c.name); err != nil {
			return err
		}
	}
	c.begun <- events
	<-c.goOn
	err = events[len(events)-1].CommitSQLTx(ctx, tx)
	if err == nil {
		err = tx.Commit()
	}
	c.answer <- err
	return err
}

// takeover lets one consumer work on orders/0 with ten events, cuts it off in the middle, and lets
// another take over from it, up to where that one begins to handle the first five.
func takeover(t *testing.T) (s site, line *relay, zombie, successor *clerk) {
	t.Helper()
	s = newSite(t, "postgres")
	line, through := newRelay(t, s.url)
	pgtest.Exec(t, s.url, `CREATE TABLE bills (value text NOT NULL, by text NOT NULL)`)
	w := s.open(t)
	lame := site{kind: s.kind, url: through}.open(t, weir.Options{Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 10)...)

	zombie, successor = newClerk(t, "zombie", s.url), newClerk(t, "successor", s.url)
	sub := weir.Subscription{Group: "billing", Topics: []string{"orders"}, Session: time.Second, MinBatch: 10, MaxBatch: 10, BatchHandler: zombie.handle, Retry: quick(-1)}
	consume(t, lame, sub)
	next(t, zombie.begun)
	line.set(true)
	sub.MinBatch, sub.MaxBatch, sub.BatchHandler = 5, 5, successor.handle
	consume(t, w, sub)
	next(t, successor.begun)
	return s, line, zombie, successor
}

// wantBills waits until each event from the first one on is billed, and sees that each is once, by
// the same clerk.
func wantBills(t *testing.T, s site, by string, first int) {
	t.Helper()
	want := fmt.Sprint(10 - first)
	count := func(what string) string { return pgtest.Value(t, s.url, `SELECT count(`+what+`) FROM bills`) }
	eventually(t, "all is billed", func() bool { return count(`DISTINCT value`) == want })
	if n := count(`*`); n != want || pgtest.Value(t, s.url, `SELECT string_agg(DISTINCT by, ' and ') FROM bills`) != by {
		t.Errorf("there are %s bills for %s events: %s", n, want, pgtest.Value(t, s.url, `SELECT string_agg(value || ' by ' || by, ', ' ORDER BY value) FROM bills`))
	}
}

func TestAZombiesTransactionIsRefusedBeforeItsSuccessorHasCommitted(t *testing.T) {
	s, line, zombie, successor := takeover(t)
	zombie.goOn <- struct{}{}
	if err := next(t, zombie.answer); !errors.Is(err, weir.ErrNotAssigned) {
		t.Errorf("the zombie's commit: %v, want ErrNotAssigned", err)
	}
	close(successor.goOn)
	wantBills(t, s, "successor", 0)
	line.set(false)
}

// Nor may it commit as the member that it has become since, which was not given the partition.
func TestAZombiesTransactionIsRefusedThoughItJoinedAgain(t *testing.T) {
	s, line, zombie, successor := takeover(t)
	line.set(false)
	w := s.open(t)
	eventually(t, "the zombie has joined again", func() bool {
		g, err := w.Group(t.Context(), "billing")
		return err == nil && len(g.Members) == 2
	})
	zombie.goOn <- struct{}{}
	if err := next(t, zombie.answer); !errors.Is(err, weir.ErrNotAssigned) {
		t.Errorf("the zombie's commit: %v, want ErrNotAssigned", err)
	}
	close(successor.goOn)
	wantBills(t, s, "successor", 0)
}

// It is a member of the group again by then, under another name.
func TestAZombiesTransactionIsRefusedAfterItsSuccessorHasCommitted(t *testing.T) {
	s, line, zombie, successor := takeover(t)
	successor.goOn <- struct{}{}
	if err := next(t, successor.answer); err != nil {
		t.Fatalf("the successor's commit: %v", err)
	}
	line.set(false)
	w := s.open(t)
	eventually(t, "the zombie has joined again", func() bool {
		g, err := w.Group(t.Context(), "billing")
		return err == nil && len(g.Members) == 2
	})
	zombie.goOn <- struct{}{}
	if err := next(t, zombie.answer); !errors.Is(err, weir.ErrHandled) && !errors.Is(err, weir.ErrNotAssigned) {
		t.Errorf("the zombie's commit: %v, want ErrHandled or ErrNotAssigned", err)
	}
	close(successor.goOn)
	wantBills(t, s, "successor", 0)
}

// A part of the batch was handled by another transaction. The whole is refused, and the consumer
// goes on behind that part.
func TestABatchOfWhichAPartWasHandledIsRefused(t *testing.T) {
	s := newSite(t, "postgres")
	pgtest.Exec(t, s.url, `CREATE TABLE bills (value text NOT NULL, by text NOT NULL)`)
	w := s.open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 10)...)
	c := newClerk(t, "clerk", s.url)
	consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, BatchHandler: c.handle, Retry: quick(1), MinBatch: 5, MaxBatch: 10})
	next(t, c.begun)
	pgtest.Exec(t, s.url, `SELECT weir.commit_offset('billing', 'orders', 0, 5)`)
	close(c.goOn)
	if err := next(t, c.answer); !errors.Is(err, weir.ErrHandled) {
		t.Errorf("the commit: %v, want ErrHandled", err)
	}
	if events := next(t, c.begun); events[0].Offset != 5 || events[0].Attempt != 1 {
		t.Errorf("the consumer went on with offset %d, attempt %d", events[0].Offset, events[0].Attempt)
	}
	wantBills(t, s, "clerk", 5)
}
