package eventlog_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
)

// Times go back and forth, batches are cut in the middle, and some claim a newest time that none of
// their records has: OffsetsAt and OffsetsOfNewest find what a search by hand finds.
func TestOffsetAtAgreesWithASearchByHand(t *testing.T) {
	random := seed.Random(t)
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	var times []int64 // by offset
	first := 0
	for range 60 {
		records := make([]batch.Record, 1+random.IntN(8))
		for i := range records {
			records[i].Timestamp = random.Int64N(100)
			times = append(times, records[i].Timestamp)
		}
		raw, err := batch.Seal(records, []batch.Codec{batch.None, batch.Zstd}[random.IntN(2)])
		if err != nil {
			t.Fatal(err)
		}
		newest := eventlog.Timestamp(100)
		if random.IntN(10) > 0 {
			newest = 0
			for _, r := range records {
				newest = max(newest, eventlog.Timestamp(r.Timestamp))
			}
		}
		if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: int32(len(records)), MaxTime: newest, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
		if random.IntN(4) == 0 {
			first += random.IntN(len(times) - first + 1)
			if err := log.Trim(t.Context(), p, eventlog.Offset(first)); err != nil {
				t.Fatal(err)
			}
		}
		at := random.Int64N(110)
		want, newestAt := -1, -1
		for i := first; i < len(times); i++ {
			if times[i] >= at && want < 0 {
				want = i
			}
			if newestAt < 0 || times[i] > times[newestAt] {
				newestAt = i
			}
		}
		check := func(what string, got eventlog.Since, want int) {
			t.Helper()
			if got.Err != nil || got.There != (want >= 0) || got.There && (int(got.Offset) != want || got.Timestamp != times[want]) {
				t.Fatalf("%s in [%d, %d): %+v; want %d", what, first, len(times), got, want)
			}
		}
		check("the first since "+strconv.FormatInt(at, 10), since(t, log, p, eventlog.Timestamp(at)), want)
		got, err := log.OffsetsOfNewest(t.Context(), []eventlog.Partition{p})
		if err != nil {
			t.Fatal(err)
		}
		check("the newest", got[0], newestAt)
	}
}

// What another process wrote is found before this one's follower has heard of it.
func TestOffsetAtFindsWhatAnotherProcessJustWrote(t *testing.T) {
	store := memory.New()
	here := open(t, store, eventlog.Config{Poll: time.Hour})
	p := topic(t, here, "orders", 1).Partitions[0]
	there := open(t, store, eventlog.Config{Poll: time.Hour})
	if _, err := there.Publish(t.Context(), p, batch.Record{Timestamp: 7}); err != nil {
		t.Fatal(err)
	}
	if got := since(t, here, p, 5); got != (eventlog.Since{Moment: batch.Moment{Offset: 0, Timestamp: 7}, There: true}) {
		t.Errorf("%+v", got)
	}
}

// since asks for one partition.
func since(t *testing.T, log *eventlog.Log, p eventlog.Partition, at eventlog.Timestamp) eventlog.Since {
	t.Helper()
	found, err := log.OffsetsAt(t.Context(), []eventlog.Goal{{Partition: p, At: at}})
	if err != nil {
		return eventlog.Since{Err: err}
	}
	return found[0]
}

// calls counts the calls of a store that find records by time.
type calls struct {
	eventlog.Store
	n atomic.Int64
}

func (s *calls) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.n.Add(1)
	return s.Store.Seek(ctx, goals)
}

func (s *calls) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.n.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

// However many partitions are searched by time, and however large their batches are, the number of
// store calls has a bound: two for each thousand partitions, and one for each 4 MiB of batches.
func TestManyPartitionsAreSearchedByTimeInFewStoreCalls(t *testing.T) {
	store := &calls{Store: memory.New()}
	log := open(t, store, eventlog.Config{Poll: time.Hour})
	const partitions, large = 2500, 100
	ps := topic(t, log, "orders", partitions).Partitions
	var entry eventlog.Entry
	for i, p := range ps {
		size := 10
		if i < large {
			size = 100_000
		}
		raw, err := batch.Seal([]batch.Record{{Timestamp: 5}, {Timestamp: int64(10 + i), Value: make([]byte, size)}, {Timestamp: 3}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		if i%5 > 0 {
			entry.Batches = append(entry.Batches, eventlog.Batch{Partition: p, Records: 3, MaxTime: eventlog.Timestamp(10 + i), Bytes: raw})
		}
	}
	if _, err := log.Append(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	goals := make([]eventlog.Goal, len(ps))
	for i, p := range ps {
		goals[i] = eventlog.Goal{Partition: p, At: 6}
	}
	check := func(what string, found []eventlog.Since, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range found {
			want := eventlog.Since{}
			if i%5 > 0 {
				want = eventlog.Since{Moment: batch.Moment{Offset: 1, Timestamp: int64(10 + i)}, There: true}
			}
			if got != want {
				t.Fatalf("%s in partition %d: %+v, want %+v", what, i, got, want)
			}
		}
	}
	store.n.Store(0)
	found, err := log.OffsetsAt(t.Context(), goals)
	check("the first since 6", found, err)
	if n := store.n.Load(); n > 12 {
		t.Errorf("%d store calls", n)
	}
	store.n.Store(0)
	found, err = log.OffsetsOfNewest(t.Context(), ps)
	check("the newest", found, err)
	if n := store.n.Load(); n > 30 {
		t.Errorf("%d store calls for the newest records", n)
	}
}
