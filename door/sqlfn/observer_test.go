package sqlfn_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
)

// watcher is an Observer that keeps the first of what it hears of each kind.
type watcher struct {
	failed  chan struct{}
	waiting chan int64 // more than none
	empty   chan struct{}
}

func newWatcher() *watcher {
	return &watcher{make(chan struct{}, 1), make(chan int64, 1), make(chan struct{}, 1)}
}

func (w *watcher) Moved(int, time.Duration) {}

func (w *watcher) Waiting(rows int64, oldest time.Duration) {
	if rows == 0 {
		first(w.empty, struct{}{})
	} else if oldest > 0 {
		first(w.waiting, rows)
	}
}

func (w *watcher) Failed() { first(w.failed, struct{}{}) }

func first[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

func hears[T any](t *testing.T, what string, ch chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatalf("in 20 seconds the observer heard of no %s", what)
	}
	return v
}

// Looks that fail and events that wait are metrics: an operator sees a stall of the inbox.
func TestObserversHearOfFailuresAndOfWhatWaits(t *testing.T) {
	address := pgtest.URL(t)
	w := newWatcher()
	p := startWith(t, address, sqlfn.Config{Observer: w, Poll: 20 * time.Millisecond})
	p.create("orders", 1, nil)
	hears(t, "empty inbox", w.empty)

	other := connect(t, address)
	exec(t, other, `BEGIN; SELECT FROM weir.mover FOR UPDATE`) // as another mover that stands still
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'v') FROM generate_series(1, 3)`)
	if rows := hears(t, "event that waits", w.waiting); rows < 1 {
		t.Errorf("%d rows wait", rows)
	}
	exec(t, other, `ROLLBACK`)
	p.read("orders", 3)

	pgtest.Exec(t, address, `ALTER TABLE weir.inbox RENAME TO away`)
	hears(t, "look that failed", w.failed)
	pgtest.Exec(t, address, `ALTER TABLE weir.away RENAME TO inbox`)
	select { // what it heard before
	case <-w.empty:
	default:
	}
	hears(t, "empty inbox behind the failures", w.empty)
}
