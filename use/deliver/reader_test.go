package deliver

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func openLog(t *testing.T) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return log
}

// readOnce reads a partition from an offset on as a consumer does, once, and returns how many
// events it then holds.
func readOnce(t *testing.T, log *eventlog.Log, p eventlog.Partition, from eventlog.Offset) (held int, err error) {
	t.Helper()
	r := &reader{log: log, id: p, next: from, epoch: log.LeaderEpoch()}
	_, err = r.more(t.Context(), 0)
	return len(r.queue), err
}

// Batches that are small in the log and large in memory are not all decoded because the first is
// wanted, and one that is too large is not decoded at all.
func TestAReadEndsWhereItsEventsTakeMuchMemory(t *testing.T) {
	log := openLog(t)
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := topic.Partitions[0]
	for _, headers := range []int{150_000, 150_000, 150_000, 150_000, 150_000, 150_000, batch.DecodedMax/40 + 1, 1} {
		raw, err := batch.Seal([]batch.Record{{Headers: make([]batch.RecordHeader, headers)}}, batch.Zstd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := readOnce(t, log, p, 0); err != nil || n != 3 {
		t.Errorf("%d events of 6 MB are decoded at once, want the 3 that pass 16 MiB: %v", n, err)
	}
	if n, err := readOnce(t, log, p, 6); n != 0 || !errors.Is(err, batch.ErrDecodedTooLarge) {
		t.Errorf("%d events of a batch that takes more than %d bytes: %v", n, batch.DecodedMax, err)
	}
	if n, err := readOnce(t, log, p, 7); err != nil || n != 1 {
		t.Errorf("%d events after it: %v", n, err)
	}
}
