package storetest

import (
	"encoding/json"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// Need puts eventlog.NeedsKey, as a newer weir does that puts something into a store which older
// ones must not touch. No log may use the Store value.
func Need(t *testing.T, s eventlog.Store, names ...string) {
	t.Helper()
	bounds, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := eventlog.Get(t.Context(), s, eventlog.EpochKey)
	if err != nil {
		t.Fatal(err)
	}
	check, put, err := eventlog.PlannedEpoch(kv, mark.Incarnation, bounds, func(eventlog.Partition, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Commit(t.Context(), []eventlog.Entry{{
		Checks: []eventlog.Check{check, {Key: eventlog.NeedsKey}},
		Puts:   []eventlog.Put{put, {Key: eventlog.NeedsKey, Version: 1, Value: value}},
	}})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}
