package eventlog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// holding notes how many holdable checks the flushes had.
type holding struct {
	eventlog.Store
	most, all int
}

func (s *holding) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	n := 0
	for _, e := range flush {
		for _, c := range e.Checks {
			if c.Holdable {
				n++
			}
		}
	}
	s.most, s.all = max(s.most, n), s.all+n
	time.Sleep(time.Second)
	return s.Store.Commit(ctx, flush)
}

// On PostgreSQL each holdable check takes a lock of a table that is finite.
func TestAFlushHasABoundOfHoldableChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &holding{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		var all sync.WaitGroup
		for i := range 1000 {
			e := eventlog.Entry{Checks: []eventlog.Check{{Key: fmt.Sprint("k", i), Holdable: true}, {Key: fmt.Sprint("l", i)}}}
			if i == 500 {
				for n := range 300 { // one entry alone may have more
					e.Checks = append(e.Checks, eventlog.Check{Key: fmt.Sprint("m", n), Holdable: true})
				}
			}
			all.Go(func() {
				if _, err := log.Append(t.Context(), e); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if store.all != 1300 || store.most != 301 && store.most != 256 {
			t.Errorf("%d holdable checks, at most %d in a flush; want 1300 and 256, or 301 in a flush of their own", store.all, store.most)
		}
	})
}
