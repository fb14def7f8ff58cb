package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-log/weir/eventlog"
)

var commitTests = map[string]func(*testing.T, Harness){
	"OffsetsAreDense":                    testOffsetsAreDense,
	"BatchesOfOneEntryAreNeighbours":     testNeighbours,
	"BytesStayAsTheyCame":                testBytesStay,
	"CommitKeepsNoHoldOfTheBytes":        testCommitLetsGo,
	"RecordsNeedAnOpenPartition":         testNoPartition,
	"OpeningTwiceChangesNothing":         testOpenTwice,
	"OneEntryMayOpenAndPublish":          testOpenAndPublish,
	"OneEntryOfAHundredFailsAlone":       testFailsAlone,
	"AnEmptyFlushIsNothing":              testEmptyFlush,
	"CommittedIsThereAfterReopening":     testReopen,
	"ACanceledCallerChangesNothing":      testCanceled,
	"OneFlushMayBeLarge":                 testLargeFlush,
	"PartitionNumbersMayBeLarge":         testLargePartitionNumber,
	"BatchesBeyondTwoToThe32ndOffsetFit": testLargeOffsets,
}

// quickly compares byte slices as a whole; cmp itself takes seconds for a megabyte.
var quickly = cmp.Comparer(bytes.Equal)

func testOffsetsAreDense(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	want := map[eventlog.Partition]eventlog.Offset{}
	for i := range 20 {
		id, records := eventlog.Partition(1+i%2), int32(1+i*i%7)
		if base := r.publish(batch(id, records, 10))[0]; base != want[id] {
			t.Fatalf("batch %d of partition %d begins at %d, want %d", i, id, base, want[id])
		}
		want[id] += eventlog.Offset(records)
	}
	for id, next := range want {
		if got := r.bounds(id); got != (eventlog.Bounds{Partition: id, Next: next, Bytes: 100}) {
			t.Errorf("bounds %+v, want next %d and 100 bytes", got, next)
		}
	}
}

func testNeighbours(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 5, 10))
	base := r.publish(batch(1, 3, 10), batch(2, 7, 10), batch(1, 4, 10), batch(2, 1, 10))
	if want := []eventlog.Offset{5, 0, 8, 7}; !slices.Equal(base, want) {
		t.Errorf("batches begin at %d, want %d", base, want)
	}
}

func testBytesStay(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	r.openPartitions(1)
	var want []eventlog.Placed
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	contents := [][]byte{every, []byte("'; DROP TABLE batch; --"), {0}, {0xff, 0xfe, 0, 'a'}, bytes.Repeat([]byte{0}, 5000)}
	for _, size := range []int{1, 61, 1023, 1024, 4095, 4096, 4097, 8192, 16 << 10, 65535, 100_000, 3 << 20} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		contents = append(contents, content)
	}
	var next eventlog.Offset
	for i, content := range contents {
		sent := eventlog.Batch{Partition: 1, Records: int32(1 + i), MaxTime: eventlog.Timestamp(i*1000) + eventlog.NoTimestamp, Bytes: content}
		r.publish(sent)
		want = append(want, eventlog.Placed{Base: next, Batch: sent})
		next += eventlog.Offset(sent.Records)
	}
	if diff := cmp.Diff(want, r.all(1), quickly); diff != "" {
		t.Errorf("read back (-want +got):\n%.2000s", diff)
	}
}

func testCommitLetsGo(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	content, value := []byte("as it was sent"), []byte("as it was put")
	r.do(eventlog.Entry{
		Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: content}},
		Puts:    []eventlog.Put{{Key: "k", Version: 1, Value: value}},
	})
	clear(content)
	clear(value)
	if got := r.all(1)[0].Bytes; string(got) != "as it was sent" {
		t.Errorf("batch changed with the caller's buffer: %q", got)
	}
	if got := r.list("k", "", 1)[0].Value; string(got) != "as it was put" {
		t.Errorf("value changed with the caller's buffer: %q", got)
	}
}

func testNoPartition(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	o := r.commit(eventlog.Entry{
		Batches: []eventlog.Batch{{Partition: 3}, batch(1, 1, 10), batch(2, 1, 10)},
		Puts:    []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}},
	})[0]
	if !errors.Is(o.Err, eventlog.ErrNoPartition) {
		t.Fatalf("records for a partition never opened: %v, want ErrNoPartition", o.Err)
	}
	if got := r.bounds(1); got.Next != 0 {
		t.Errorf("a refused entry left records: %+v", got)
	}
	if got := r.list("", "", 10); len(got) != 0 {
		t.Errorf("a refused entry left keys: %+v", got)
	}
	for _, slice := range r.read(eventlog.Span{Partition: 2, MaxBytes: 100}, eventlog.Span{Partition: 3}) {
		if !errors.Is(slice.Err, eventlog.ErrNoPartition) {
			t.Errorf("partition %d: %v, want ErrNoPartition", slice.Bounds.Partition, slice.Err)
		}
	}
}

func testOpenTwice(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 5, 10))
	r.openPartitions(1)
	if got, want := r.bounds(1), (eventlog.Bounds{Partition: 1, Next: 5, Bytes: 10}); got != want {
		t.Errorf("opened again: %+v, want %+v", got, want)
	}
}

func testOpenAndPublish(t *testing.T, h Harness) {
	r := newRig(t, h)
	outcomes := r.commit(
		eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}, batch(1, 2, 10), batch(1, 3, 10)}},
		eventlog.Entry{Batches: []eventlog.Batch{{Partition: 2}}},
		eventlog.Entry{Batches: []eventlog.Batch{batch(3, 1, 10)}},
		eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}},
	)
	for i, want := range [][]eventlog.Offset{{0, 0, 2}, {0}, nil, {0}} {
		if !slices.Equal(outcomes[i].Base, want) {
			t.Errorf("entry %d: %+v, want base %d", i, outcomes[i], want)
		}
	}
	if err := outcomes[2].Err; !errors.Is(err, eventlog.ErrNoPartition) {
		t.Errorf("records for a partition that nobody opens: %v, want ErrNoPartition", err)
	}
	if got := r.bounds(1).Next; got != 5 {
		t.Errorf("next is %d, want 5", got)
	}
}

func testFailsAlone(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.put(eventlog.Put{Key: "fence", Version: 7, Value: []byte("held")})
	flush := make([]eventlog.Entry, 100)
	for i := range flush {
		flush[i] = eventlog.Entry{
			Batches: []eventlog.Batch{batch(eventlog.Partition(1+i%2), 1, 10)},
			Puts:    []eventlog.Put{{Key: fmt.Sprintf("key/%03d", i), Version: 1, Value: []byte("at "), AddBase: 1}},
		}
	}
	flush[41].Checks = []eventlog.Check{{Key: "fence", Version: 6}}
	flush[42].Batches = append(flush[42].Batches, batch(99, 1, 10))
	next := map[eventlog.Partition]eventlog.Offset{}
	for i, o := range r.commit(flush...) {
		if want := map[int]error{41: eventlog.ErrStale, 42: eventlog.ErrNoPartition}[i]; !errors.Is(o.Err, want) {
			t.Errorf("entry %d: %v, want %v", i, o.Err, want)
		}
		if o.Err != nil {
			continue
		}
		id := flush[i].Batches[0].Partition
		if o.Base[0] != next[id] {
			t.Errorf("entry %d begins at %d, want %d", i, o.Base[0], next[id])
		}
		next[id]++
	}
	if got := len(r.list("key/", "", 1000)); got != 98 {
		t.Errorf("%d keys, want those of 98 entries", got)
	}
	if got := r.list("key/099", "", 1)[0]; string(got.Value) != "at 48" {
		t.Errorf("last value %q, want the base offset after the text", got.Value)
	}
	if r.bounds(1).Next != 49 || r.bounds(2).Next != 49 {
		t.Errorf("partitions end at %d and %d, want 49 each", r.bounds(1).Next, r.bounds(2).Next)
	}
}

func testEmptyFlush(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.commit()
	if base := r.do(eventlog.Entry{}); len(base) != 0 {
		t.Errorf("an empty entry got offsets %d", base)
	}
}

func testReopen(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 3, 10), batch(1, 2, 200_000))
	r.trim(1, 1)
	r.put(eventlog.Put{Key: "k", Version: 4, Value: []byte("v")})
	before := r.all(1)
	r.reopen()
	if diff := cmp.Diff(before, r.all(1), quickly); diff != "" {
		t.Errorf("after reopening (-before +after):\n%.2000s", diff)
	}
	if got := r.bounds(1); got.First != 1 || got.Next != 5 {
		t.Errorf("bounds after reopening: %+v, want [1, 5)", got)
	}
	if got := r.bounds(2); got.Next != 0 {
		t.Errorf("the empty partition after reopening: %+v", got)
	}
	if got := r.list("", "", 10); len(got) != 1 || got[0].Version != 4 || string(got[0].Value) != "v" {
		t.Errorf("keys after reopening: %+v", got)
	}
	if base := r.publish(batch(1, 1, 10))[0]; base != 5 {
		t.Errorf("after reopening offsets go on at %d, want 5", base)
	}
}

func testCanceled(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := r.store.Commit(ctx, []eventlog.Entry{{Batches: []eventlog.Batch{batch(1, 1, 10)}}})
	if err == nil || errors.Is(err, eventlog.ErrUnsure) {
		t.Fatalf("commit for a caller who left before it began: %v, want an error that is certain", err)
	}
	if got := r.bounds(1).Next; got != 0 {
		t.Errorf("it was said not to have happened, and it did: next is %d", got)
	}
	if base := r.publish(batch(1, 1, 10))[0]; base != 0 {
		t.Errorf("the next caller got offset %d, want 0", base)
	}
}

func testLargeFlush(t *testing.T, h Harness) {
	r := newRig(t, h)
	var ids []eventlog.Partition
	var flush []eventlog.Entry
	for i := range 500 {
		id := eventlog.Partition(i)
		ids = append(ids, id)
		flush = append(flush, eventlog.Entry{
			Batches: []eventlog.Batch{batch(id, 1, 20_000), batch(id, 2, 10)},
			Puts:    []eventlog.Put{{Key: fmt.Sprint("offset/", i), Version: 1, AddBase: 2, Value: []byte{}}},
		})
	}
	r.openPartitions(ids...)
	for i, o := range r.commit(flush...) {
		if o.Err != nil || !slices.Equal(o.Base, []eventlog.Offset{0, 1}) {
			t.Fatalf("entry %d: %+v", i, o)
		}
	}
	if got := len(r.list("offset/", "", 1000)); got != 500 {
		t.Errorf("%d keys, want 500", got)
	}
}

func testLargePartitionNumber(t *testing.T, h Harness) {
	r := newRig(t, h)
	const id = eventlog.Partition(1) << 40
	r.openPartitions(id)
	r.publish(batch(id, 3, 10))
	if got := r.all(id); len(got) != 1 || got[0].Partition != id {
		t.Errorf("read back %+v", got)
	}
}

func testLargeOffsets(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	const most = 1<<31 - 1
	r.publish(batch(1, most, 10), batch(1, most, 10), batch(1, most, 10))
	if base := r.publish(batch(1, 1, 10))[0]; base != 3*most {
		t.Errorf("fourth batch begins at %d, want %d", base, int64(3*most))
	}
	slice := r.read(eventlog.Span{Partition: 1, From: 3*most - 1, MaxBytes: 1})[0]
	if len(slice.Batches) != 1 || slice.Batches[0].Base != 2*most {
		t.Errorf("read from %d: %+v", int64(3*most-1), slice)
	}
}
