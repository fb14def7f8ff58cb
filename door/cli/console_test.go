package cli

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/ledger"
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
		s := newConsoleSecret(log, slog.New(slog.DiscardHandler))
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
		if took := time.Since(began); took > 2*recent.AskMax {
			t.Errorf("they waited %v", took)
		}
		store.mu.Lock()
		if store.gets > 3 {
			t.Errorf("the store was asked %d times", store.gets)
		}
		store.hang = false
		store.mu.Unlock()
		time.Sleep(secretFresh)
		key, err := s.get(t.Context())
		again, _ := s.get(t.Context())
		if err != nil || len(key) != 32 || string(again) != string(key) {
			t.Errorf("once the store answers: %d bytes, %v", len(key), err)
		}

		// Whoever deletes it ends all sessions, of running processes, too.
		if _, err := ledger.Change(t.Context(), log, consoleSecretKey, func(eventlog.KeyValue) ([]byte, eventlog.Entry, error) {
			return nil, eventlog.Entry{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(secretFresh)
		next, err := s.get(t.Context())
		if err != nil || len(next) != 32 || string(next) == string(key) {
			t.Errorf("after the key was deleted: %d bytes, the same: %t, %v", len(next), string(next) == string(key), err)
		}
	})
}
