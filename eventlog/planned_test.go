package eventlog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// plan begins a leader epoch as another process does that moves a partition. behind is how much was
// appended after it read the bounds.
func plan(t *testing.T, store eventlog.Store, behind eventlog.Offset) {
	t.Helper()
	bounds, mark, err := store.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := eventlog.Get(t.Context(), store, eventlog.EpochKey)
	if err != nil {
		t.Fatal(err)
	}
	for i := range bounds {
		bounds[i].Next = max(0, bounds[i].Next-behind)
	}
	check, put, err := eventlog.PlannedEpoch(kv, mark.Incarnation, bounds, func(eventlog.Partition, string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	out, err := store.Commit(t.Context(), []eventlog.Entry{{Checks: []eventlog.Check{check}, Puts: []eventlog.Put{put}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
}

// A planned epoch is a higher one for everybody, and sends no reader back, however many there were.
// EpochKey does not grow with them.
func TestAPlannedEpochSendsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		first := log.LeaderEpoch()
		for i := range 5 {
			publish(t, log, p, fmt.Sprint(i))
			before := log.LeaderEpoch()
			plan(t, store, 1)
			changed := log.IncarnationChanged()
			<-changed
			if log.LeaderEpoch() <= before {
				t.Errorf("epoch %d follows %d", log.LeaderEpoch(), before)
			}
			for _, asked := range []int32{first, before, log.LeaderEpoch()} {
				if epoch, end, known := log.EpochEnd(p, asked, eventlog.Offset(i+1)); !known || epoch > asked || end != eventlog.Offset(i+1) {
					t.Errorf("the records of epoch %d end at %d (epoch %d, %v); none was lost of %d", asked, end, epoch, known, i+1)
				}
				if log.EpochForgotten(asked) {
					t.Errorf("epoch %d is forgotten", asked)
				}
			}
		}
		kv, err := log.Get(t.Context(), eventlog.EpochKey)
		var record struct{ Epochs []any }
		if err := errors.Join(err, json.Unmarshal(kv.Value, &record)); err != nil || len(record.Epochs) != 2 {
			t.Errorf("%s (%v)", kv.Value, err)
		}
	})
}

// What was lost is told to readers, also if the loss was not noticed before a planned epoch began.
func TestAPlannedEpochHidesNoLoss(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		var before int32
		store, log, p := rewound(t, silently, func(log *eventlog.Log, _ eventlog.Partition) { before = log.LeaderEpoch() })
		plan(t, store, 0)
		for { // the log notices
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("new"), Timestamp: time.Now().UnixMilli()}); err == nil {
				break
			}
		}
		if _, end, known := log.EpochEnd(p, before, 4); !known || end != 3 {
			t.Errorf("the records of the lost epoch end at %d (%v), want 3", end, known)
		}
	})
}
