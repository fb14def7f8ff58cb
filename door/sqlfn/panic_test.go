package sqlfn_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
)

// A partitioner is somebody else's code. Where it panics the row stays in the inbox, and the others
// are moved.
func TestAPanicOfThePartitionerIsTheTroubleOfItsRowAlone(t *testing.T) {
	address := pgtest.URL(t)
	p := startWith(t, address, sqlfn.Config{}.WithPartitioner(func(e *publish.Event, n int) int32 {
		if string(e.Key) == "wrong" {
			panic("no such key")
		}
		return 0
	}))
	p.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.publish('orders', 'a', '1'), weir.publish('orders', 'wrong', '2'), weir.publish('orders', 'a', '3')`)
	if got := values(p.read("orders", 2)); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("read %v", got)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`); got != "1" {
		t.Errorf("%s rows are in the inbox, want the one that the partitioner does not like", got)
	}
}

// panicking is an observer that panics when it is told of the first move.
type panicking struct {
	moved  atomic.Int32
	failed chan struct{} // receives when it is told of a failure
}

func (o *panicking) Moved(int, time.Duration) {
	if o.moved.Add(1) == 1 {
		panic("a fault")
	}
}
func (o *panicking) Waiting(int64, time.Duration) {}
func (o *panicking) Failed()                      { o.failed <- struct{}{} }

// A fault in the mover is told and counted; neither the process nor the mover ends of it.
func TestAMoverThatPanicsGoesOn(t *testing.T) {
	address := pgtest.URL(t)
	observer := &panicking{failed: make(chan struct{}, 1000)}
	p := startWith(t, address, sqlfn.Config{Observer: observer})
	p.create("orders", 1, nil)
	conn := connect(t, address)
	for _, value := range []string{"1", "2", "3"} {
		exec(t, conn, `SELECT weir.publish('orders', 'k', $1::text)`, value)
	}
	if got := values(p.read("orders", 3)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("read %v", got)
	}
	select { // the events may be there before the mover has come back from its fault
	case <-observer.failed:
	case <-time.After(time.Minute):
		t.Error("nobody was told of the fault")
	}
}
