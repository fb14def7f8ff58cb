package eventlog_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
)

// Times go back and forth, batches are cut in the middle, and some claim a newest time that none of their records has: OffsetAt and
// OffsetOfNewest find what a search by hand finds.
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
		check := func(what string, got batch.Moment, found bool, err error, want int) {
			t.Helper()
			if err != nil || found != (want >= 0) || found && (int(got.Offset) != want || got.Timestamp != times[want]) {
				t.Fatalf("%s in [%d, %d): %+v, %v, %v; want %d", what, first, len(times), got, found, err, want)
			}
		}
		got, found, err := log.OffsetAt(t.Context(), p, eventlog.Timestamp(at))
		check("the first since "+strconv.FormatInt(at, 10), got, found, err, want)
		got, found, err = log.OffsetOfNewest(t.Context(), p)
		check("the newest", got, found, err, newestAt)
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
	if got, found, err := here.OffsetAt(t.Context(), p, 5); err != nil || !found || got != (batch.Moment{Offset: 0, Timestamp: 7}) {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
}
