package stream_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// weighed remembers the largest answer of List, in bytes.
type weighed struct {
	*memory.Store
	mu   sync.Mutex // guards most
	most int
}

func (w *weighed) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := w.Store.List(ctx, prefix, after, limit)
	n := 0
	for _, kv := range kvs {
		n += len(kv.Value)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, n)
	return kvs, err
}

// A sweep of large events and snapshots holds a page of them in memory, and no more.
func TestASweepOfLargeEventsTakesNoMoreMemoryThanAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &weighed{Store: memory.New()}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		const n, size = 40, 1_000_000
		for v := range int64(n) {
			_, err := c.Append(t.Context(), "s", stream.Expected(v), stream.NewEvent{Type: "t", Data: make([]byte, size)})
			check(t, err)
			check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: v + 1, Data: make([]byte, size)}))
		}
		check(t, c.Forget(t.Context(), "s", n-1))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Second)
		cancel()
		check(t, <-done)
		store.mu.Lock()
		if store.most > 20*size {
			t.Errorf("a store call brought %d MiB", store.most>>20)
		}
		store.mu.Unlock()
		left := 0
		check(t, p.log.ListAll(t.Context(), "stream/", func(kv eventlog.KeyValue) error {
			if len(kv.Value) > size/2 {
				left++
			}
			return nil
		}))
		if left != 3 { // the last event, and the snapshots with it and without it
			t.Errorf("%d large values are left, want 3", left)
		}
	})
}
