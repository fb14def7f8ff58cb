package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// wideCommits is a store that takes a second for a flush that makes or deletes a hundred
// partitions.
type wideCommits struct {
	eventlog.Store
	wide atomic.Int64 // how many such flushes there were
}

func (s *wideCommits) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	partitions := 0
	for _, e := range flush {
		partitions += len(e.Batches) + len(e.Forgets)
	}
	if partitions >= 100 {
		s.wide.Add(1)
		time.Sleep(time.Second) // fake time
	}
	return s.Store.Commit(ctx, flush)
}

// A client that makes and deletes large topics in a loop has a fifth of the store's time, and keeps
// nobody waiting for longer than one such change takes.
func TestLargeTopicsInALoopLeaveTheStoreToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &wideCommits{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		create := func(name string, partitions int) {
			if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions}); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		var loops, others sync.WaitGroup
		over := make(chan struct{})
		for client := range 2 {
			loops.Go(func() {
				for range 5 {
					name := fmt.Sprint("large-", client)
					create(name, 100)
					if err := log.DeleteTopic(t.Context(), name); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var longest time.Duration
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(700 * time.Millisecond):
				}
				asked := time.Now()
				create(fmt.Sprint("small-", n), 1)
				longest = max(longest, time.Since(asked))
			}
		})
		loops.Wait()
		took := time.Since(began)
		close(over)
		others.Wait()
		wide := time.Duration(store.wide.Load()) * time.Second
		if wide != 20*time.Second {
			t.Errorf("20 changes of large topics kept the store busy for %v", wide)
		}
		if least := 5*wide - 25*time.Second; took < least { // they may be 20 s ahead, and the last one need not wait
			t.Errorf("%v of large changes were made in %v, want %v at least", wide, took, least)
		}
		if longest > 2*time.Second {
			t.Errorf("a small topic was made in %v", longest)
		}
	})
}

// A large change that has to wait for too long says why. The store is not to blame.
func TestALargeChangeThatRestsTooLongSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, &wideCommits{Store: memory.New()}, eventlog.Config{})
		for n := range 6 { // a few are made together
			topic(t, log, fmt.Sprint("large-", n), 100)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := log.CreateTopic(ctx, eventlog.TopicSpec{Name: "second", Partitions: 100})
		if !errors.Is(err, eventlog.ErrBusy) || !strings.Contains(err.Error(), "a fifth of the store's time") || strings.Contains(err.Error(), "unavailable") {
			t.Error(err)
		}
		topic(t, log, "small", 1) // it waits for nothing
		topic(t, log, "second", 100)
	})
}
