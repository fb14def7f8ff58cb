package eventlog_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// history is a partition of n batches that no tail remembers, and a log to read it with.
func history(t *testing.T, store eventlog.Store, n int) (*eventlog.Log, eventlog.Partition) {
	t.Helper()
	writer := open(t, store, eventlog.Config{})
	p := topic(t, writer, "orders", 1).Partitions[0]
	for range n {
		if _, err := writer.Publish(t.Context(), p, batch.Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, store, eventlog.Config{}), p
}

// one fetches the batch at an offset.
func one(t *testing.T, log *eventlog.Log, p eventlog.Partition, from eventlog.Offset) eventlog.Slice {
	t.Helper()
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

func TestReaderOfHistoryIsPrefetchedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		log, p := history(t, store, 10)
		before := store.reads.Load()
		for from := range eventlog.Offset(9) {
			synctest.Wait() // what is read ahead has come
			trips := store.reads.Load() - before
			if got := one(t, log, p, from); len(got.Batches) != 1 || got.Batches[0].Base != from {
				t.Fatalf("from %d: %+v", from, got)
			}
			if from >= 2 && trips != int64(from)+1 {
				t.Errorf("before the fetch at %d there were %d trips, want %d: one for each batch, and one ahead", from, trips, from+1)
			}
		}
	})
}

func TestOneReadOfHistoryPrefetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		log, p := history(t, store, 10)
		before := store.reads.Load()
		for _, from := range []eventlog.Offset{7, 2, 5, 0} {
			one(t, log, p, from)
		}
		synctest.Wait()
		if trips := store.reads.Load() - before; trips != 4 {
			t.Errorf("%d trips for 4 fetches here and there", trips)
		}
	})
}

func TestPrefetchDoesNotOutliveTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := history(t, memory.New(), 10)
		one(t, log, p, 0)
		one(t, log, p, 1) // 2 is read ahead
		synctest.Wait()
		if err := log.Trim(t.Context(), p, 5); err != nil {
			t.Fatal(err)
		}
		var outside *eventlog.RangeError
		if got := one(t, log, p, 2); !errors.As(got.Err, &outside) {
			t.Errorf("a trimmed offset: %+v", got)
		}
		one(t, log, p, 5)
		one(t, log, p, 6) // 7 is read ahead
		synctest.Wait()
		if err := log.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if got := one(t, log, p, 7); !errors.Is(got.Err, eventlog.ErrNoPartition) {
			t.Errorf("a deleted topic: %+v", got)
		}
	})
}

func TestPrefetchFailsOverToATrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memory.New()}
		log, p := history(t, store, 10)
		one(t, log, p, 0)
		store.broken.Store(1) // the trip ahead, and no other
		one(t, log, p, 1)
		synctest.Wait()
		if got := one(t, log, p, 2); len(got.Batches) != 1 {
			t.Errorf("after the trip ahead failed: %+v", got)
		}
	})
}

func TestPrefetchLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		log, p := history(t, store, 10)
		one(t, log, p, 0)
		one(t, log, p, 1) // 2 is read ahead
		time.Sleep(time.Minute)
		before := store.reads.Load()
		one(t, log, p, 2)
		if trips := store.reads.Load() - before; trips != 1 {
			t.Errorf("%d trips after a minute, want 1: nothing is kept so long for a reader that may be gone", trips)
		}
	})
}

// What is read ahead counts with its true size: a batch that is larger than what its reader asks
// for must not get past the limit.
func TestPrefetchCountsWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		writer := open(t, store, eventlog.Config{})
		const each, partitions = 3 << 20, 24
		large := topic(t, writer, "large", partitions)
		for _, p := range large.Partitions {
			for range 4 {
				if _, err := writer.Publish(t.Context(), p, batch.Record{Value: make([]byte, each)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		log := open(t, &counting{Store: store}, eventlog.Config{TailBytes: 1})
		for _, p := range large.Partitions {
			one(t, log, p, 0)
			one(t, log, p, 1) // 2 is read ahead
		}
		synctest.Wait()
		if held := log.HeldPrefetched(); held > 32<<20 {
			t.Errorf("%d bytes are held for readers that may come", held)
		}
		for _, p := range large.Partitions {
			if got := one(t, log, p, 2); len(got.Batches) != 1 || got.Batches[0].Base != 2 {
				t.Errorf("partition %d: %+v", p, got.Bounds)
			}
		}
	})
}
