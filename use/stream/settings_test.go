package stream_test

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// max.message.bytes counts as it is when an append comes, not as it was when the category was
// looked up.
func TestAChangedMaxMessageBytesCountsForAnAppend(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		alter := func(bytes string) {
			_, err := p.log.AlterTopic(t.Context(), "orders", func(config map[string]string) error {
				config["max.message.bytes"] = bytes
				return nil
			})
			check(t, err)
		}
		large := stream.NewEvent{Type: "t", Data: make([]byte, 2<<20)}
		alter("4000000")
		_, err := c.Append(t.Context(), "s", 0, large)
		check(t, err)
		check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 1, Data: large.Data}))
		alter("1000000")
		if _, err := c.Append(t.Context(), "s", 1, large); !errors.Is(err, eventlog.ErrTooLarge) {
			t.Errorf("appended 2 MiB: %v", err)
		}
		if err := c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 1, Data: large.Data}); !errors.Is(err, eventlog.ErrTooLarge) {
			t.Errorf("saved a snapshot of 2 MiB: %v", err)
		}
	})
}

// Events whose headers no reader of the category would decode are refused: those that one batch may
// hold.
func TestEventsWithMoreHeadersThanAReaderDecodesAreRefused(t *testing.T) {
	p := begin(t, memory.New())
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Settings: map[string]string{"max.message.bytes": "100000000"}})
	check(t, err)
	headers := make([]batch.RecordHeader, 2_000_000)
	for i := range headers {
		headers[i].Key = "h"
	}
	event := stream.NewEvent{Type: "t", Metadata: headers}
	if _, err := c.Append(t.Context(), "s", stream.Any, event, event); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("appended: %v, want ErrTooLarge", err)
	}
}
