package cli

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// hanging is a store whose keys cannot be read until it goes on.
type hanging struct {
	eventlog.Store
	mu   sync.Mutex
	hang bool
	gets int
}

func (h *hanging) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	h.mu.Lock()
	hang := h.hang
	h.gets++
	h.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return h.Store.List(ctx, prefix, after, limit)
}

// Whoever opens the login while the store hangs waits for a moment, and the store is not asked for
// each of them.
func TestAStoreThatHangsHoldsUpNoPageOfTheConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{Store: memory.New()}
		log, err := eventlog.Open(t.Context(), store, eventlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = log.Run(ctx) })
		defer running.Wait()
		defer stop()
		s := &consoleSecret{log: log, turn: make(chan struct{}, 1)}
		store.mu.Lock()
		store.hang, store.gets = true, 0
		store.mu.Unlock()
		began := time.Now()
		var pages sync.WaitGroup
		for range 100 {
			pages.Go(func() {
				if _, err := s.get(t.Context()); err == nil {
					t.Error("there is a key, although the store hangs")
				}
			})
		}
		pages.Wait()
		if took := time.Since(began); took > 2*secretWait {
			t.Errorf("they waited %v", took)
		}
		store.mu.Lock()
		if store.gets > 3 {
			t.Errorf("the store was asked %d times", store.gets)
		}
		store.hang = false
		store.mu.Unlock()
		time.Sleep(secretAgain)
		key, err := s.get(t.Context())
		again, _ := s.get(t.Context())
		if err != nil || len(key) != 32 || string(again) != string(key) {
			t.Errorf("once the store answers: %d bytes, %v", len(key), err)
		}
	})
}
