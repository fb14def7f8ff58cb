package storetest

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
)

var movedTests = map[string]func(*testing.T, Harness){
	"MovedListsAllAtFirst":             testMovedAll,
	"MovedListsWhatChangedSince":       testMovedSince,
	"MovedSeesOtherStoresOnTheSame":    testMovedOther,
	"MarksOfSeveralAskersStandAlone":   testMovedMarks,
	"MovedForgetsForgottenPartitions":  testMovedForget,
	"MovedIsQuietWhereNothingChanges":  testMovedQuiet,
	"RefusedEntriesMoveNothingForever": testMovedRefused,
}

// moved asks once, and expects the answer to agree with the bounds read at the same time.
func (r *rig) moved(store eventlog.Store, since eventlog.Mark) (map[eventlog.Partition]eventlog.Bounds, eventlog.Mark) {
	r.Helper()
	list, mark, err := store.Changes(r.ctx, since)
	if err != nil {
		r.Fatalf("moved since %+v: %v", since, err)
	}
	if mark == (eventlog.Mark{}) {
		r.Fatalf("moved since %+v gave the zero mark", since)
	}
	moved := map[eventlog.Partition]eventlog.Bounds{}
	for _, bounds := range list {
		if got := r.bounds(bounds.Partition); got != bounds {
			r.Errorf("moved lists %+v, and read says %+v", bounds, got)
		}
		moved[bounds.Partition] = bounds
	}
	if len(moved) != len(list) {
		r.Errorf("a partition is listed twice: %+v", list)
	}
	return moved, mark
}

func testMovedAll(t *testing.T, h Harness) {
	r := newRig(t, h)
	if got, _ := r.moved(r.store, eventlog.Mark{}); len(got) != 0 {
		t.Errorf("an empty store lists %+v", got)
	}
	r.openPartitions(1, 2, 3)
	r.publish(batch(2, 5, 10))
	r.publish(batch(3, 5, 10))
	r.trim(3, 5)
	if got, _ := r.moved(r.store, eventlog.Mark{}); len(got) != 3 || got[2].Next != 5 || got[3].First != 5 {
		t.Errorf("all: %+v", got)
	}
}

func testMovedSince(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2, 3)
	_, mark := r.moved(r.store, eventlog.Mark{})
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"records", func() { r.publish(batch(2, 5, 10)) }},
		{"trim", func() { r.trim(2, 1) }},
		{"both", func() { r.publish(batch(1, 5, 10)); r.trim(2, 3) }},
		{"opening", func() { r.openPartitions(2, 4) }},
	} {
		spans := []eventlog.Span{{Partition: 1}, {Partition: 2}, {Partition: 3}, {Partition: 4}}
		before := r.read(spans...)
		step.change()
		var got map[eventlog.Partition]eventlog.Bounds
		got, mark = r.moved(r.store, mark)
		for i, now := range r.read(spans...) {
			if _, listed := got[now.Bounds.Partition]; !listed && (now.Bounds != before[i].Bounds || now.Err != before[i].Err) {
				t.Errorf("%s: %+v became %+v and is not listed in %+v", step.name, before[i], now, got)
			}
		}
	}
}

func testMovedOther(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	other := r.another()
	_, mark := r.moved(other, eventlog.Mark{})
	for i := range eventlog.Offset(5) {
		r.publish(batch(2, 1, 10))
		var got map[eventlog.Partition]eventlog.Bounds
		got, mark = r.moved(other, mark)
		if got[2].Next != i+1 {
			t.Fatalf("the other store was not told of record %d: %+v", i, got)
		}
	}
}

func testMovedMarks(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	_, first := r.moved(r.store, eventlog.Mark{})
	r.publish(batch(1, 1, 10))
	_, second := r.moved(r.store, first)
	r.publish(batch(2, 1, 10))
	if got, _ := r.moved(r.store, second); got[2].Next != 1 {
		t.Errorf("the later mark: %+v", got)
	}
	for range 2 {
		if got, _ := r.moved(r.store, first); got[1].Next != 1 || got[2].Next != 1 {
			t.Errorf("the earlier mark, asked with after the later: %+v", got)
		}
	}
}

func testMovedForget(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	_, mark := r.moved(r.store, eventlog.Mark{})
	r.publish(batch(1, 1, 10), batch(2, 1, 10))
	r.forget(1)
	got, mark := r.moved(r.store, mark)
	if _, listed := got[1]; listed || got[2].Next != 1 {
		t.Errorf("after forgetting partition 1: %+v", got)
	}
	if got, _ := r.moved(r.store, eventlog.Mark{}); len(got) != 1 {
		t.Errorf("all, after forgetting partition 1: %+v", got)
	}
	r.publish(batch(2, 1, 10))
	if got, _ := r.moved(r.store, mark); got[2].Next != 2 {
		t.Errorf("moved after a forgotten partition was the last to change: %+v", got)
	}
}

func testMovedQuiet(t *testing.T, h Harness) {
	r := newRig(t, h)
	for id := range eventlog.Partition(20) {
		r.openPartitions(id)
	}
	_, mark := r.moved(r.store, eventlog.Mark{})
	_, mark = r.moved(r.store, mark)
	if got, _ := r.moved(r.store, mark); len(got) != 0 {
		t.Errorf("nothing changed, and twice it listed %+v", got)
	}
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("v")})
	r.publish(batch(3, 1, 10))
	if got, _ := r.moved(r.store, mark); len(got) > 10 || got[3].Next != 1 {
		t.Errorf("one of twenty changed, and it listed %+v", got)
	}
}

func testMovedRefused(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	_, mark := r.moved(r.store, eventlog.Mark{})
	r.commit(eventlog.Entry{Batches: []eventlog.Batch{batch(1, 1, 10)}, Checks: []eventlog.Check{{Key: "k", Version: 1}}})
	got, mark := r.moved(r.store, mark)
	if b, listed := got[1]; listed && b.Next != 0 {
		t.Errorf("after a refused entry: %+v", got)
	}
	r.publish(batch(1, 1, 10))
	if got, _ := r.moved(r.store, mark); got[1].Next != 1 {
		t.Errorf("after the entry that followed: %+v", got)
	}
}
