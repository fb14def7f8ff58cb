package eventlog_test

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// A reader of history with many partitions gets the events of many of them with one answer, also if
// it asks each for as much as the whole answer may have.
func TestOneAnswerOfTheStoreHasManySmallPartitions(t *testing.T) {
	const partitions, most = 1000, 1 << 20
	store := memory.New()
	writer := open(t, store, eventlog.Config{})
	var spans []eventlog.Span
	for _, p := range topic(t, writer, "orders", partitions).Partitions {
		if _, err := writer.Append(t.Context(), sealed(t, p, 1, -1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		spans = append(spans, eventlog.Span{Partition: p, MaxBytes: most})
	}
	reader := open(t, store, eventlog.Config{}) // it has nothing in memory
	got, err := reader.Fetch(t.Context(), eventlog.Want{Spans: spans, MaxBytes: most})
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for _, s := range got {
		if len(s.Batches) > 0 {
			full++
		}
	}
	if full != partitions {
		t.Errorf("%d of %d partitions are in the first answer", full, partitions)
	}
}
