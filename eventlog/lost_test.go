package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/store/memory"
)

// fetchIn fetches what there is from an offset on, for a reader of an epoch.
func fetchIn(t *testing.T, log *eventlog.Log, epoch *int32, spans ...eventlog.Span) []eventlog.Slice {
	t.Helper()
	for i := range spans {
		spans[i].MaxBytes = 1 << 20
	}
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: spans, Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantLost checks that a span was refused because its epoch ended at an offset.
func wantLost(t *testing.T, s eventlog.Slice, end eventlog.Offset) {
	t.Helper()
	var lost *eventlog.RangeError
	if !errors.As(s.Err, &lost) || lost.Next != end || len(s.Batches) != 0 {
		t.Errorf("a reader gets %+v, want that its epoch ended at %d", s, end)
	}
}

// The log has grown since, but not as far as the reader stands.
func TestAReaderIsSentBackToTheLossAndNotToTheEnd(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		_, log, p := rewound(t, silently, nil)
		time.Sleep(time.Second) // of fake time
		publish(t, log, p, "new")
		epoch := int32(0)
		wantLost(t, fetchIn(t, log, &epoch, eventlog.Span{Partition: p, From: 6})[0], 3)
	})
}

// While memory is short Fetch gathers twice: what the first round would have refused must not pass
// the second.
func TestALossIsToldThoughMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		parts := topic(t, log, "t", 2).Partitions
		p, large := parts[0], parts[1]
		publish(t, log, p, "kept")
		restore := store.Backup()
		publish(t, log, p, "lost")
		restore(false)
		time.Sleep(time.Second) // of fake time
		for range 3 {
			publish(t, log, p, "new")
		}
		publish(t, log, large, strings.Repeat("x", 40_000))
		memory := budget.New(100_000)
		other, mine := memory.Begin(), memory.Begin()
		other.TryGrow(90_000, true)
		freed := time.AfterFunc(time.Second, func() { other.Release() })
		defer freed.Stop()
		epoch := int32(0)
		got, err := log.Fetch(t.Context(), eventlog.Want{Claim: mine, Epoch: &epoch, Spans: []eventlog.Span{
			{Partition: large, From: 0, MaxBytes: 1 << 20}, {Partition: p, From: 2, MaxBytes: 1 << 20},
		}})
		if err != nil || len(got[0].Batches) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		wantLost(t, got[1], 1)
	})
}

// unread is a store that answers no reads for a while.
type unread struct {
	eventlog.Store
	away atomic.Bool
}

func (u *unread) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if u.away.Load() {
		return nil, eventlog.ErrUnavailable
	}
	return u.Store.Read(ctx, spans, maxBytes)
}

// One span is answered from memory and the other needs the store: its reader is told of the loss
// all the same.
func TestALossIsToldThoughTheStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backing := memory.New()
		store := &unread{Store: backing}
		log := open(t, store, eventlog.Config{})
		parts := topic(t, log, "t", 2).Partitions
		publish(t, log, parts[0], "kept")
		restore := backing.Backup()
		publish(t, log, parts[0], "lost")
		restore(false)
		time.Sleep(time.Second) // of fake time
		publish(t, log, parts[1], "new")
		store.away.Store(true)
		epoch := int32(0)
		wantLost(t, fetchIn(t, log, &epoch, eventlog.Span{Partition: parts[1]}, eventlog.Span{Partition: parts[0], From: 2})[1], 1)
	})
}

// An older server comes back, with more records than the newer one began with, and without its
// epoch.
func TestReadersOfAnEpochThatIsLostWholeAreSentBackToWhereItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		publish(t, log, p, "kept")
		lost := store.Backup()
		for range 4 {
			publish(t, log, p, "old")
		}
		older := store.Backup()
		lost(false)
		time.Sleep(time.Second) // of fake time
		for i := range 2 {
			publish(t, log, p, fmt.Sprint("new ", i))
		}
		epoch := log.LeaderEpoch()
		older(false)
		time.Sleep(time.Second)
		wantLost(t, fetchIn(t, log, &epoch, eventlog.Span{Partition: p, From: 3})[0], 1)
	})
}

// full is a store that takes nothing and is slow to say where it is.
type full struct {
	eventlog.Store
	on atomic.Bool
}

func (f *full) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if f.on.Load() {
		return nil, eventlog.ErrNoSpace
	}
	return f.Store.Commit(ctx, flush)
}

func (f *full) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	bounds, mark, err := f.Store.Changes(ctx, since)
	time.Sleep(20 * time.Millisecond)
	return bounds, mark, err
}

// The disk of a restarted store is full, so no epoch can begin: what is stored can be read, also if
// this process missed the epoch of a restart before.
func TestAFullStoreOfAnotherIncarnationIsRead(t *testing.T) {
	for restarts := range 2 {
		synctest.Test(t, func(t *testing.T) {
			backing := memory.New()
			store := &full{Store: backing}
			log := open(t, store, eventlog.Config{TailBytes: 1}) // so that readers ask the store
			p := topic(t, log, "t", 1).Partitions[0]
			publish(t, log, p, "kept")
			time.Sleep(time.Second) // of fake time
			store.on.Store(true)
			for range restarts {
				backing.Backup()(false)
				if _, err := eventlog.Open(t.Context(), backing, eventlog.Config{}); err != nil {
					t.Fatal(err)
				}
			}
			backing.Backup()(false)
			time.Sleep(5 * time.Second)
			epoch := int32(0)
			for range 1000 {
				if s := fetchIn(t, log, &epoch, eventlog.Span{Partition: p})[0]; len(s.Batches) != 1 {
					t.Fatalf("%+v", s)
				}
				time.Sleep(time.Millisecond)
			}
			if missed := restarts > 0; missed != (epoch > 0) {
				t.Errorf("after %d restarts before, the answers are of epoch %d", restarts, epoch)
			}
		})
	}
}

// A store has no leader epoch: because its first one could not be written, or because a copy of
// before that was put back. The log begins one as soon as it can.
func TestALogBeginsTheFirstEpochWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backing := memory.New()
		empty := backing.Backup()
		store := &full{Store: backing}
		store.on.Store(true)
		log := open(t, store, eventlog.Config{})
		time.Sleep(5 * time.Second) // of fake time
		store.on.Store(false)
		time.Sleep(5 * time.Second)
		publish(t, log, topic(t, log, "t", 1).Partitions[0], "v")
		before := log.LeaderEpoch()
		empty(false)
		time.Sleep(5 * time.Second)
		publish(t, log, topic(t, log, "t", 1).Partitions[0], "v")
		if now := log.LeaderEpoch(); now <= before {
			t.Errorf("after all was lost the log is in epoch %d, before in %d", now, before)
		}
	})
}

// A consumer that is away for months comes back, and nothing was lost.
func TestManyRestartsSendNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		store.Backup()(false)
		time.Sleep(time.Second) // of fake time
		p := topic(t, log, "t", 1).Partitions[0]
		publish(t, log, p, "kept")
		epoch := log.LeaderEpoch()
		for range 100 {
			store.Backup()(false)
			time.Sleep(time.Second)
		}
		if s := fetchIn(t, log, &epoch, eventlog.Span{Partition: p, From: 1})[0]; s.Err != nil {
			t.Error(s.Err)
		}
	})
}
