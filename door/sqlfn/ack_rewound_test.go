package sqlfn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// A mover found an ack, and then the store lost its end: at the same offset may be another message,
// which nobody handled.
func TestAnAckThatWasFoundBeforeTheStoreLostItsEndIsNotCarried(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	q, got := oneClaimed(t, m)
	pgtest.Exec(t, address, fmt.Sprintf(`SELECT weir.ack('%s')`, got.Receipt))
	found, err := m.inbox.poll(t.Context())
	if err != nil || len(found.rows) != 1 {
		t.Fatal(err, found)
	}

	was := m.inbox.mark.of.store
	m.inbox.mark.of.store.Epoch-- // as if it had been found in the incarnation before this one
	if err := m.moveMessages(t.Context(), found.rows); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("the ack was carried: %v, want ErrRewound", err)
	}
	if _, err := m.inbox.forgetAnswered(t.Context(), []answer{{Ack: got.Receipt}}); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("the ack's key was deleted: %v, want ErrRewound", err)
	}
	if c, err := q.Find(t.Context(), got.ID); err != nil || c.State == "done" {
		t.Errorf("the message is %q (%v), by an ack of another incarnation", c.State, err)
	}
	if n := pgtest.Value(t, address, `SELECT count(*) FROM weir.acked`); n != "1" {
		t.Errorf("%s acks of this incarnation are known, want 1", n)
	}

	m.inbox.mark.of.store = was // and in this one it is carried
	if err := m.moveMessages(t.Context(), found.rows); err != nil {
		t.Fatal(err)
	}
	if c, err := q.Find(t.Context(), got.ID); err != nil || c.State != "done" {
		t.Errorf("then the message is %q (%v), want done", c.State, err)
	}
}

// The queue's state does not have the claim of an ack that was committed: the ack is kept.
func TestAnAckIsNotDroppedWhereTheQueueDoesNotKnowTheClaim(t *testing.T) {
	m := still(t, pgtest.URL(t))
	q, got := oneClaimed(t, m)
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("next")}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.inbox.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	fields := strings.Split(got.Receipt, ".")
	fields[2] = strconv.FormatInt(int64(got.Offset)+1, 10)
	a := answer{Ack: strings.Join(fields, ".")}
	if err := m.apply(t.Context(), a.call(), []answer{a}); !errors.Is(err, queue.ErrStaleReceipt) {
		t.Errorf("it counts as carried: %v", err)
	}
}

// oneClaimed has the mover serve queues, and returns a queue with one message, which is claimed for
// an hour.
func oneClaimed(t *testing.T, m *Mover) (*queue.Queue, queue.Message) {
	t.Helper()
	qs := queue.New(m.log, publish.New(m.log, publish.Config{}), queue.Config{Beside: m.door})
	m.cfg.Queues = qs
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { qs.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if _, err := qs.Create(t.Context(), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	q, err := qs.Open(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	got, err := q.Claim(t.Context(), queue.Claim{Wait: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatal(err, got)
	}
	return q, got[0]
}
