package eventlog_test

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// farAndNear is a log with a partition of ten batches that only the store has, and one of ten that are in memory. All batches have so many bytes.
func farAndNear(t *testing.T, store eventlog.Store) (log *eventlog.Log, far, near eventlog.Partition, each int) {
	t.Helper()
	log, far = history(t, store, 10)
	near = topic(t, log, "news", 1).Partitions[0]
	for range 10 {
		if _, err := log.Publish(t.Context(), near, batch.Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	return log, far, near, len(one(t, log, near, 0).Batches[0].Bytes)
}

// A reader that asks for partitions in turn is served in turn, wherever they are: else one that lags would wait for as long as others have enough.
func TestFetchServesInTheOrderOfTheRequest(t *testing.T) {
	type ask struct {
		far        bool
		from, most int // batches
	}
	for name, c := range map[string]struct {
		asks []ask
		most int   // batches
		want []int // of each
	}{
		"far first":             {[]ask{{true, 0, 4}, {false, 0, 4}}, 4, []int{4, 0}},
		"near first":            {[]ask{{false, 0, 4}, {true, 0, 4}}, 4, []int{4, 0}},
		"each has more":         {[]ask{{true, 0, 10}, {false, 0, 10}}, 4, []int{4, 0}},
		"near has more":         {[]ask{{false, 0, 10}, {true, 0, 10}}, 4, []int{4, 0}},
		"room for both":         {[]ask{{true, 0, 2}, {false, 0, 2}}, 4, []int{2, 2}},
		"no bound":              {[]ask{{true, 0, 20}, {false, 0, 20}}, 0, []int{10, 10}},
		"what the first leaves": {[]ask{{true, 8, 4}, {false, 0, 4}}, 4, []int{2, 2}},
		"in between":            {[]ask{{false, 8, 4}, {true, 9, 4}, {false, 0, 4}}, 4, []int{2, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			log, far, near, each := farAndNear(t, memory.New())
			w := eventlog.Want{MaxBytes: c.most * each}
			for _, a := range c.asks {
				p := near
				if a.far {
					p = far
				}
				w.Spans = append(w.Spans, eventlog.Span{Partition: p, From: eventlog.Offset(a.from), MaxBytes: a.most * each})
			}
			got, err := log.Fetch(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if n := len(got[i].Batches); n != want || got[i].Err != nil {
					t.Errorf("%d batches of span %d, want %d; error %v", n, i, want, got[i].Err)
				}
			}
		})
	}
}

// What waits for the store holds nothing back when the store is away.
func TestFetchServesWhatIsInMemoryWhileTheStoreIsAway(t *testing.T) {
	store := &flaky{Store: memory.New()}
	log, far, near, each := farAndNear(t, store)
	store.passed.Store(true)
	store.broken.Store(2)
	want := eventlog.Want{Spans: []eventlog.Span{{Partition: far, MaxBytes: 4 * each}, {Partition: near, MaxBytes: 4 * each}}, MaxBytes: 4 * each}
	got, err := log.Fetch(t.Context(), want)
	if err != nil || len(got[0].Batches) > 0 || len(got[1].Batches) != 4 {
		t.Errorf("%d and %d batches, %v", len(got[0].Batches), len(got[1].Batches), err)
	}
	want.Spans = want.Spans[:1]
	if _, err := log.Fetch(t.Context(), want); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("with nothing to serve: %v", err)
	}
}
