package weir_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

func TestReadYieldsWhatWasThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		for _, v := range numbered("", 10) {
			publish(t, w, "orders", v)
		}
		var got []string
		for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.AtOffset(4)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Value))
			publish(t, w, "orders", "later")
		}
		if !slices.Equal(got, numbered("", 10)[4:]) {
			t.Errorf("from 4: %q", got)
		}
		for e, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
			if err != nil || e.Offset > 2 {
				t.Fatal(e, err)
			}
			if e.Offset == 2 {
				break
			}
		}
	})
}

func TestReadOfWhatIsNotThereIsOneError(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	for _, c := range []struct {
		of   weir.TopicPartition
		from weir.Position
	}{{weir.TopicPartition{Topic: "missing"}, weir.Earliest}, {weir.TopicPartition{Topic: "orders", Partition: 1}, weir.Earliest}, {weir.TopicPartition{Topic: "orders"}, weir.AtOffset(1)}} {
		n := 0
		for _, err := range w.Read(t.Context(), c.of, c.from) {
			var invalid *weir.InvalidError
			if n++; !errors.Is(err, weir.ErrUnknownTopic) && !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if n != 1 {
			t.Errorf("%+v: %d errors", c, n)
		}
	}
}

// Batches that are small in the log and large in memory are not all decoded because the first is
// wanted, and one that is too large is not decoded at all.
func TestAReadEndsWhereItsEventsTakeMuchMemory(t *testing.T) {
	log := newSite(t, "memory").open(t)
	topic, err := log.Core().CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := topic.Partitions[0]
	for _, headers := range []int{150_000, 150_000, 150_000, 150_000, 150_000, 150_000, batch.DecodedMax/40 + 1, 1} {
		raw, err := batch.Seal([]batch.Record{{Headers: make([]batch.RecordHeader, headers)}}, batch.Zstd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Core().Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := weir.ReadOnce(t.Context(), log, p, 0); err != nil || n != 3 {
		t.Errorf("%d events of 6 MB are decoded at once, want the 3 that pass 16 MiB: %v", n, err)
	}
	if n, err := weir.ReadOnce(t.Context(), log, p, 6); n != 0 || !errors.Is(err, batch.ErrDecodedTooLarge) {
		t.Errorf("%d events of a batch that takes more than %d bytes: %v", n, batch.DecodedMax, err)
	}
	if n, err := weir.ReadOnce(t.Context(), log, p, 7); err != nil || n != 1 {
		t.Errorf("%d events after it: %v", n, err)
	}
}
