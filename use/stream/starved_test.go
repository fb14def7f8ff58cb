package stream_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// A stream to which somebody always appends has a snapshot saved nevertheless.
func TestASnapshotOfABusyStreamIsSaved(t *testing.T) {
	store := &hooked{Store: memory.New(), prefix: "stream/"}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	_, err := c.Append(t.Context(), "s", 0, plain("a")...)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	appended := 0
	var appendOne func()
	appendOne = func() { // after each read of the store
		if appended++; appended == 100 {
			cancel()
			return
		}
		if _, err := c.Append(t.Context(), "s", stream.Any, plain("b")...); err != nil {
			t.Error(err)
		}
		store.after.Store(&appendOne)
	}
	store.after.Store(&appendOne)
	if err := c.SaveSnapshot(ctx, "s", stream.Snapshot{Version: 1}); err != nil {
		t.Errorf("after %d appends: %v", appended, err)
	}
	store.after.Store(nil)
}
