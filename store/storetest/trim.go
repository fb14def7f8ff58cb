package storetest

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

var trimTests = map[string]func(*testing.T, Harness){
	"TrimMovesFirstExactly":                testTrimExact,
	"TrimNeverGoesDownNorPastNext":         testTrimBounded,
	"ATrimmedPartitionGoesOnWhereItWas":    testTrimAll,
	"TrimLeavesOtherPartitionsAlone":       testTrimOthers,
	"ForgetRemovesThePartition":            testForget,
	"ForgettingIsAPartOfItsEntry":          testForgetWhole,
	"ForgottenStaysForgottenWhenReopened":  testForgetReopen,
	"TrimOfAPartitionNeverOpenedIsNothing": testTrimUnknown,
	"TrimsAreMadeTogether":                 testTrimMany,
}

func testTrimExact(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 10 {
		r.publish(batch(1, 10, 100))
	}
	for _, before := range []eventlog.Offset{1, 9, 10, 11, 29, 30, 77, 99} {
		r.trim(1, before)
		got := r.bounds(1)
		if got.First != before || got.Next != 100 {
			t.Fatalf("trimmed below %d: %+v", before, got)
		}
		if least := 100 * (10 - int64(before)/10); got.Bytes < least || got.Bytes > 1000 {
			t.Errorf("trimmed below %d: %d bytes, want %d to 1000", before, got.Bytes, least)
		}
		if held := r.all(1); held[0].Base != before/10*10 {
			t.Errorf("trimmed below %d: starts with the batch at %d", before, held[0].Base)
		}
	}
}

func testTrimBounded(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 10, 100))
	for _, c := range []struct{ before, first eventlog.Offset }{{4, 4}, {3, 4}, {0, 4}, {-5, 4}, {4, 4}, {11, 10}, {1 << 40, 10}, {2, 10}} {
		r.trim(1, c.before)
		if got := r.bounds(1); got.First != c.first || got.Next != 10 {
			t.Errorf("trimmed below %d: %+v, want [%d, 10)", c.before, got, c.first)
		}
	}
}

func testTrimAll(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 3 {
		r.publish(batch(1, 10, 100), batch(1, 10, 100_000))
		r.trim(1, r.bounds(1).Next)
		if got := r.bounds(1); got.First != got.Next {
			t.Fatalf("trimmed to the end: %+v", got)
		}
		r.reopen()
	}
	if base := r.publish(batch(1, 1, 10))[0]; base != 60 {
		t.Errorf("offsets go on at %d, want 60", base)
	}
	if held := r.all(1); len(held) != 1 || held[0].Base != 60 {
		t.Errorf("holds %+v", held)
	}
}

func testTrimOthers(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2, 3)
	for range 5 {
		r.publish(batch(1, 1, 100), batch(2, 1, 100), batch(3, 1, 100))
	}
	r.trim(2, 5)
	for _, id := range []eventlog.Partition{1, 3} {
		if got := r.bounds(id); got != (eventlog.Bounds{Partition: id, Next: 5, Bytes: 500}) || len(r.all(id)) != 5 {
			t.Errorf("after a trim of its neighbour: %+v with %d batches", got, len(r.all(id)))
		}
	}
}

func testForget(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 10, 100), batch(2, 10, 100))
	for range 2 {
		r.forget(1)
		if slice := r.read(eventlog.Span{Partition: 1, MaxBytes: 1000})[0]; !errors.Is(slice.Err, eventlog.ErrNoPartition) || len(slice.Batches) != 0 {
			t.Errorf("read of a forgotten partition: %+v, want ErrNoPartition", slice)
		}
		if o := r.commit(eventlog.Entry{Batches: []eventlog.Batch{batch(1, 1, 10)}})[0]; !errors.Is(o.Err, eventlog.ErrNoPartition) {
			t.Errorf("records for a forgotten partition: %v, want ErrNoPartition", o.Err)
		}
		if _, err := seekOne(r.ctx, r.store, 1, eventlog.Goal{At: 1}); !errors.Is(err, eventlog.ErrNoPartition) {
			t.Errorf("seek in a forgotten partition: %v, want ErrNoPartition", err)
		}
	}
	if got := r.bounds(2).Next; got != 10 {
		t.Errorf("its neighbour ends at %d, want 10", got)
	}
}

func testForgetWhole(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2, 3)
	r.publish(batch(1, 10, 100), batch(2, 10, 100), batch(3, 10, 100))
	r.put(eventlog.Put{Key: "k", Version: 1, Value: []byte("v")})
	entry := eventlog.Entry{
		Batches: []eventlog.Batch{{Partition: 4}, batch(3, 5, 100)},
		Checks:  []eventlog.Check{{Key: "k", Version: 7}},
		Puts:    []eventlog.Put{{Key: "k"}},
		Forgets: []eventlog.Partition{2, 9, 1},
	}
	if o := r.commit(entry)[0]; !errors.Is(o.Err, eventlog.ErrStale) {
		t.Fatalf("an entry with a stale check: %v, want ErrStale", o.Err)
	}
	homeless := entry
	homeless.Checks, homeless.Batches = nil, []eventlog.Batch{batch(8, 1, 10)}
	if o := r.commit(homeless)[0]; !errors.Is(o.Err, eventlog.ErrNoPartition) {
		t.Fatalf("an entry with records for no partition: %v, want ErrNoPartition", o.Err)
	}
	for id := range eventlog.Partition(3) {
		if held := r.all(id + 1); len(held) != 1 {
			t.Errorf("after two refused entries partition %d holds %+v", id+1, held)
		}
	}
	entry.Checks[0].Version = 1
	if base := r.do(entry); base[1] != 10 {
		t.Errorf("the records of the entry are at %v", base)
	}
	for id, want := range map[eventlog.Partition]error{1: eventlog.ErrNoPartition, 2: eventlog.ErrNoPartition, 3: nil, 4: nil, 9: eventlog.ErrNoPartition} {
		if slice := r.read(eventlog.Span{Partition: id, MaxBytes: 1000})[0]; !errors.Is(slice.Err, want) {
			t.Errorf("partition %d: %+v, want %v", id, slice, want)
		}
	}
	if left := r.list("k", "", 10); len(left) != 0 {
		t.Errorf("the key is still there: %+v", left)
	}
}

func testForgetReopen(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 10, 100_000), batch(2, 10, 100))
	r.forget(1)
	r.reopen()
	if slice := r.read(eventlog.Span{Partition: 1})[0]; !errors.Is(slice.Err, eventlog.ErrNoPartition) {
		t.Errorf("a forgotten partition after reopening: %+v, want ErrNoPartition", slice)
	}
	if held := r.all(2); len(held) != 1 {
		t.Errorf("its neighbour after reopening: %+v", held)
	}
}

func testTrimUnknown(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.trim(1, 5)
	r.forget(1)
	r.openPartitions(1)
	if got := r.bounds(1); got != (eventlog.Bounds{Partition: 1}) {
		t.Errorf("opened afterwards: %+v", got)
	}
}

// Many partitions are trimmed by one call: some do not exist, some have nothing to trim, one is
// named twice, and none is in order.
func testTrimMany(t *testing.T, h Harness) {
	r := newRig(t, h)
	const partitions = 40
	var opened []eventlog.Partition
	for id := range eventlog.Partition(partitions) {
		if id%10 != 9 {
			opened = append(opened, id+1)
		}
	}
	r.openPartitions(opened...)
	for range 3 {
		var all []eventlog.Batch
		for _, id := range opened {
			all = append(all, batch(id, 10, 100))
		}
		r.publish(all...)
	}
	var trims []eventlog.Trim
	want := make(map[eventlog.Partition]eventlog.Offset)
	for id := eventlog.Partition(partitions); id > 0; id-- {
		before := eventlog.Offset(id) - 3 // from -2 to 37, and the partitions end at 30
		trims = append(trims, eventlog.Trim{Partition: id, Before: before})
		want[id] = min(max(before, 0), 30)
	}
	trims = append(trims, eventlog.Trim{Partition: 12, Before: 25}, eventlog.Trim{Partition: 12, Before: 5})
	want[12] = 25
	errs, err := r.store.Trim(r.ctx, trims)
	if err != nil || len(errs) != len(trims) {
		t.Fatalf("%d errors for %d trims: %v", len(errs), len(trims), err)
	}
	for i, err := range errs {
		if err != nil {
			t.Errorf("%+v: %v", trims[i], err)
		}
	}
	for range 2 {
		for _, id := range opened {
			if got := r.bounds(id); got.First != want[id] || got.Next != 30 {
				t.Errorf("%+v, want [%d, 30)", got, want[id])
			}
		}
		r.reopen()
	}
	if errs, err := r.store.Trim(r.ctx, nil); err != nil || len(errs) != 0 {
		t.Errorf("no trims: %v, %v", errs, err)
	}
}
