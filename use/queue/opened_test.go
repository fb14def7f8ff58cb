package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

// A process keeps nothing of a queue that was deleted or purged, also if another process did that
// and nobody uses the queue again.
func TestADeletedQueueDoesNotStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queues = 30
		store := memory.New()
		begin := func() *Queues {
			log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			qs := New(log, publish.New(log, publish.Config{}), Config{})
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { _ = log.Run(ctx) })
			running.Go(func() { _ = qs.Run(ctx) })
			t.Cleanup(func() { cancel(); running.Wait() })
			synctest.Wait()
			return qs
		}
		here, elsewhere := begin(), begin()
		for i := range queues {
			name := fmt.Sprint("q", i)
			if _, err := elsewhere.Create(t.Context(), Spec{Name: name, Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			for _, qs := range []*Queues{here, elsewhere} {
				q, err := qs.Open(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := q.Claim(t.Context(), Claim{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		end := elsewhere.Delete
		for i := range queues - 1 {
			if err := end(t.Context(), fmt.Sprint("q", i)); err != nil {
				t.Fatal(err)
			}
			if i == queues/2 {
				end = elsewhere.Purge
			}
		}
		time.Sleep(10 * time.Second) // of fake time: long enough for the notices
		synctest.Wait()
		for name, qs := range map[string]*Queues{"the other process": here, "the process that ended them": elsewhere} {
			qs.mu.Lock()
			if n := len(qs.opened); n != 1 {
				t.Errorf("%s has %d queues in memory, want 1", name, n)
			}
			qs.mu.Unlock()
			if _, err := qs.Open(t.Context(), fmt.Sprint("q", queues-1)); err != nil {
				t.Error(err)
			}
		}
	})
}
