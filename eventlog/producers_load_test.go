package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// slowLists is a store in which listing keys takes a millisecond.
type slowLists struct{ counting }

func (s *slowLists) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	time.Sleep(time.Millisecond) // in fake time
	return s.counting.List(ctx, prefix, after, limit)
}

// Batches that memory alone cannot refuse wait for the store, and everybody behind them in the
// queue waits as well: so the states of many producers are read at the same time, and one state
// serves all tickets that were submitted before it was read.
func TestProducersThatNobodyKnowsDoNotHoldUpOthers(t *testing.T) {
	const tickets = 640
	for _, c := range []struct {
		name    string
		id      func(i int) int64
		sent    int32 // the sequence
		atMost  time.Duration
		lists   int64
		refused error
	}{
		{"many ids", func(i int) int64 { return int64(1000 + i) }, 5, 60 * time.Millisecond, tickets, eventlog.ErrUnknownProducer},
		{"one id", func(int) int64 { return 1000 }, 5, 3 * time.Millisecond, 2, eventlog.ErrUnknownProducer},
		{"ids that another broker used", func(i int) int64 { return int64(1 + i) }, 1, 60 * time.Millisecond, tickets, nil},
		{"ids that another broker used, with a new epoch", func(i int) int64 { return int64(1 + i) }, 0, 60 * time.Millisecond, tickets, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			other := open(t, store, eventlog.Config{})
			p := topic(t, other, "t", 1).Partitions[0]
			var before []*eventlog.Ticket
			for i := range tickets {
				before = append(before, other.Submit(t.Context(), sealed(t, p, 1, int64(1+i), 0, 0)))
			}
			for _, ticket := range before {
				if _, err := ticket.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			slow := &slowLists{counting{Store: store}}
			log := open(t, slow, eventlog.Config{})
			synctest.Wait()
			slow.lists.Store(0)
			began := time.Now()
			var all []*eventlog.Ticket
			for i := range tickets {
				epoch := int16(0)
				if c.sent == 0 {
					epoch = 1
				}
				all = append(all, log.Submit(t.Context(), sealed(t, p, 1, c.id(i), epoch, c.sent)))
			}
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v")}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > c.atMost {
				t.Errorf("%s: a record behind %d batches took %v, the limit is %v", c.name, tickets, took, c.atMost)
			}
			if n := slow.lists.Load(); n > c.lists {
				t.Errorf("%s: %d batches cost %d reads of a state, the limit is %d", c.name, tickets, n, c.lists)
			}
			for i, ticket := range all {
				if _, err := ticket.Wait(t.Context()); !errors.Is(err, c.refused) {
					t.Fatalf("%s: batch %d: %v", c.name, i, err)
				}
			}
		})
	}
}

// A second batch of a known producer follows its first in the queue, and is no reason to ask the
// store.
func TestAnUnknownProducerHasNoKnownOnesRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowLists{counting{Store: memory.New()}}
		log := open(t, slow, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		const known = 100
		for id := range int64(known) {
			if _, err := log.Append(t.Context(), sealed(t, p, 1, id, 0, 0)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		slow.lists.Store(0)
		all := []*eventlog.Ticket{log.Submit(t.Context(), sealed(t, p, 1, 8888, 0, 5))} // while its state is read, the others queue up
		all = append(all, log.Submit(t.Context(), sealed(t, p, 1, 9999, 0, 5)))
		for id := range int64(known) {
			for sequence := range int32(3) {
				all = append(all, log.Submit(t.Context(), sealed(t, p, 1, id, 0, 1+sequence)))
			}
		}
		for i, ticket := range all {
			if _, err := ticket.Wait(t.Context()); (i < 2) != errors.Is(err, eventlog.ErrUnknownProducer) || i >= 2 && err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
		}
		if n := slow.lists.Load(); n > 2 {
			t.Errorf("%d states were read, of 2 producers that are unknown", n)
		}
	})
}

// listsInARow counts the most reads of states without a commit between.
type listsInARow struct {
	slowLists
	most int64
}

func (s *listsInARow) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.most = max(s.most, s.lists.Swap(0))
	return s.slowLists.Commit(ctx, entries)
}

func TestProducersThatAnotherBrokerMovedOnAreReadAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		other := open(t, store, eventlog.Config{})
		p := topic(t, other, "t", 1).Partitions[0]
		const ids = 300
		for id := range int64(ids) {
			if _, err := other.Append(t.Context(), sealed(t, p, 1, id, 0, 0)); err != nil {
				t.Fatal(err)
			}
		}
		slow := &listsInARow{slowLists: slowLists{counting{Store: store}}}
		log := open(t, slow, eventlog.Config{})
		synctest.Wait()
		slow.lists.Store(0)
		slow.most = 0
		var all []*eventlog.Ticket
		for id := range int64(ids) {
			all = append(all, log.Submit(t.Context(), sealed(t, p, 1, id, 1, 0))) // a new epoch: memory alone would take it
		}
		for i, ticket := range all {
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
		}
		if slow.most > 64 {
			t.Errorf("%d states were read before anything else was appended, the limit is 64", slow.most)
		}
	})
}
