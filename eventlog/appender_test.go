package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/store/memory"
)

// flushes notes how many records each flush took.
type flushes struct {
	eventlog.Observer
	records []int64
}

func (f *flushes) Flushed(d eventlog.Flush) { f.records = append(f.records, d.Records) }

// Callers who were answered by one flush and say more share the next one: that some are back while
// others are not does not mean that nobody else is coming.
func TestCallersOfOneFlushShareTheNext(t *testing.T) {
	const callers, rounds = 50, 100
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // everybody's turn comes
	synctest.Test(t, func(t *testing.T) {           // and meanwhile no time passes
		seen := &flushes{}
		log := open(t, memory.New(), eventlog.Config{Observer: seen})
		p := topic(t, log, "t", 1).Partitions[0]
		before := len(seen.records)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range rounds {
					for range 5 * (i % 4) {
						runtime.Gosched()
					}
					if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		full := 0
		for _, n := range seen.records[before:] {
			if n == callers {
				full++
			}
		}
		// It takes some rounds to gather them, and in the last ones some are done.
		if full < rounds/2 {
			t.Errorf("of %d rounds, %d went out as one flush of all %d callers; the flushes had %v records", rounds, full, callers, seen.records[before:])
		}
	})
}

// refusing refuses a flush as a whole when one of its entries puts the key "bad". Its commits take
// a second, so that a flush gathers.
type refusing struct{ eventlog.Store }

func (s refusing) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(time.Second)
	for _, e := range flush {
		for _, p := range e.Puts {
			if p.Key == "bad" {
				return nil, errRefused
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

var errRefused = errors.New("the store refuses it")

// What the store refuses for one caller's entry happens for all others who share the flush, in
// their order.
func TestARefusedEntryDoesNotHarmThoseWhoShareItsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, refusing{memory.New()}, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		var tickets []*eventlog.Ticket
		for i := range 5 {
			e := sealed(t, p, 1, -1, 0, int32(i))
			if i == 2 {
				e.Puts = []eventlog.Put{{Key: "bad", Version: 1, Value: []byte("v")}}
			}
			tickets = append(tickets, log.Submit(t.Context(), e))
		}
		next := eventlog.Offset(0)
		for i, ticket := range tickets {
			out, err := ticket.Wait(t.Context())
			switch {
			case i == 2 && !errors.Is(err, errRefused):
				t.Errorf("the bad entry: %v", err)
			case i != 2 && err != nil:
				t.Errorf("entry %d, which shares a flush with a bad one: %v", i, err)
			case i != 2:
				if out.Base[0] != next {
					t.Errorf("entry %d is at %d, expected %d", i, out.Base[0], next)
				}
				next++
			}
		}
	})
}

// The contract of stores lets no entry name a key twice: PostgreSQL would refuse the whole flush.
func TestAnEntryThatPutsAKeyTwiceNeverReachesTheStore(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	twice := eventlog.Put{Key: "k", Version: 1, Value: []byte("v")}
	if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{twice, {Key: "other", Version: 1, Value: []byte("v")}, twice}}); err == nil {
		t.Error("it was taken")
	}
	for _, key := range []string{"k", "other"} {
		if kv, err := log.Get(t.Context(), key); err != nil || kv.Version != 0 {
			t.Errorf("the store has %s at version %d (%v)", key, kv.Version, err)
		}
	}
}

// What build writes belongs to its caller once Wait has returned, also if the caller gave up while
// it ran.
func TestWaitReturnsAfterALateEntryIsBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		ctx, giveUp := context.WithCancel(t.Context())
		goOn, returned := make(chan struct{}), make(chan error, 1)
		ticket := log.SubmitLate(ctx, 1, func() (eventlog.Entry, bool) {
			<-goOn
			return eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}}, true
		})
		go func() {
			_, err := ticket.Wait(ctx)
			returned <- err
		}()
		synctest.Wait()
		giveUp()
		synctest.Wait()
		select {
		case err := <-returned:
			t.Errorf("Wait returned (%v) while the entry was built", err)
		default:
			close(goOn)
			if err := <-returned; err != nil && !errors.Is(err, eventlog.ErrUnsure) {
				t.Error(err)
			}
			return
		}
		close(goOn)
	})
}

// Callers submit while an entry is built, and what a build panics with is its own ticket's error.
func TestWhoBuildsALateEntryHoldsUpNoSubmitAndEndsNoProcess(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	var other *eventlog.Ticket
	late := log.SubmitLate(t.Context(), 1, func() (eventlog.Entry, bool) {
		submitted := make(chan *eventlog.Ticket, 1)
		go func() {
			submitted <- log.Submit(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "other", Version: 1, Value: []byte("v")}}})
		}()
		select {
		case other = <-submitted:
		case <-time.After(time.Minute):
		}
		panic("a build's own")
	})
	var panicked *recovered.Error
	if _, err := late.Wait(t.Context()); !errors.As(err, &panicked) || panicked.Value != "a build's own" {
		t.Errorf("the ticket of the build that panicked: %v", err)
	}
	if other == nil {
		t.Fatal("nobody could submit while an entry was built")
	}
	if _, err := other.Wait(t.Context()); err != nil {
		t.Errorf("the ticket submitted meanwhile: %v", err)
	}
}

// tallest notes how many batches and puts the largest flush had.
type tallest struct {
	eventlog.Store
	parts int
}

func (s *tallest) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	parts := 0
	for _, e := range flush {
		parts += len(e.Batches) + len(e.Puts)
	}
	s.parts = max(s.parts, parts)
	time.Sleep(time.Second)
	return s.Store.Commit(ctx, flush)
}

// Small batches and keys are a store's work, too: many of them do not make one long flush, for
// which everybody waits.
func TestAFlushHasABoundOfBatchesAndPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 1000
		store := &tallest{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		one := sealed(t, p, 1, -1, 0, 0).Batches[0]
		var all sync.WaitGroup
		for i := range 20 {
			var e eventlog.Entry
			for n := range each {
				if i%2 == 0 {
					e.Batches = append(e.Batches, one)
				} else {
					e.Puts = append(e.Puts, eventlog.Put{Key: fmt.Sprint("k/", i, "/", n), Version: 1})
				}
			}
			all.Go(func() {
				if _, err := log.Append(t.Context(), e); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if store.parts > 5*each {
			t.Errorf("a flush had %d batches and puts", store.parts)
		}
	})
}
