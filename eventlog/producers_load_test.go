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

// Batches that memory alone cannot refuse wait for the store, and everybody behind them in the queue waits as well: so the states of many
// producers are read at the same time, and one state serves all tickets that were submitted before it was read.
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
