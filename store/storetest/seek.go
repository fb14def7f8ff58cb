package storetest

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

var seekTests = map[string]func(*testing.T, Harness){
	"SeekByTimeFindsTheFirstBatchNotOlder": testSeekTime,
	"SeekByBytesNeverLeavesLess":           testSeekBytes,
	"SeekInAnEmptyPartitionFindsItsEnd":    testSeekEmpty,
	"SeekAgreesWithASearchByHand":          testSeekRandom,
	"SeekAnswersManyGoalsInOrder":          testSeekMany,
}

func testSeekTime(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	// Times go back and forth, as producers' clocks do; base offsets are 0, 10, 20, ...
	for _, at := range []eventlog.Timestamp{100, 300, 200, 300, eventlog.NoTimestamp, 250, 400, 400, 350} {
		r.publish(eventlog.Batch{Partition: 1, Records: 10, MaxTime: at, Bytes: make([]byte, 10)}, batch(2, 1, 10))
	}
	for _, c := range []struct {
		at   eventlog.Timestamp
		want eventlog.Offset
	}{{-1, 0}, {0, 0}, {100, 0}, {101, 10}, {250, 10}, {300, 10}, {301, 60}, {400, 60}, {401, 90}} {
		if got := r.seek(1, eventlog.Goal{At: c.at}); got != c.want {
			t.Errorf("first batch not older than %d: %d, want %d", c.at, got, c.want)
		}
	}
	r.trim(1, 20)
	for _, c := range []struct {
		at   eventlog.Timestamp
		want eventlog.Offset
	}{{-1, 20}, {200, 20}, {250, 30}, {300, 30}, {301, 60}, {401, 90}} {
		if got := r.seek(1, eventlog.Goal{At: c.at}); got != c.want {
			t.Errorf("trimmed below 20, first batch not older than %d: %d, want %d", c.at, got, c.want)
		}
	}
	for _, c := range []struct {
		at         eventlog.Timestamp
		from, want eventlog.Offset
	}{{-1, 0, 20}, {200, 20, 20}, {200, 25, 25}, {250, 30, 30}, {300, 40, 60}, {300, 39, 39}, {250, 45, 50}, {-1, 45, 45}, {400, 65, 65}, {400, 70, 70}, {400, 80, 90}, {350, 80, 80}, {0, 90, 90}, {0, 99, 90}} {
		if got := r.seek(1, eventlog.Goal{At: c.at, From: c.from}); got != c.want {
			t.Errorf("from %d on, first batch not older than %d: %d, want %d", c.from, c.at, got, c.want)
		}
	}
	r.trim(1, 75)
	if got := r.seek(1, eventlog.Goal{At: 400}); got != 75 {
		t.Errorf("trimmed within the batch that is found: %d, want first, 75", got)
	}
}

func testSeekBytes(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 10 {
		r.publish(batch(1, 5, 100))
	}
	for _, c := range []struct {
		bytes int64
		want  eventlog.Offset
	}{{1, 45}, {100, 45}, {101, 40}, {500, 25}, {999, 0}, {1000, 0}, {1001, 0}, {1 << 60, 0}} {
		if got := r.seek(1, eventlog.Goal{Bytes: c.bytes}); got != c.want {
			t.Errorf("boundary that leaves %d bytes: %d, want %d", c.bytes, got, c.want)
		}
	}
	r.trim(1, 12)
	for _, c := range []struct {
		bytes int64
		want  eventlog.Offset
	}{{100, 45}, {700, 15}, {701, 12}, {1 << 60, 12}} {
		if got := r.seek(1, eventlog.Goal{Bytes: c.bytes}); got != c.want {
			t.Errorf("trimmed below 12, boundary that leaves %d bytes: %d, want %d", c.bytes, got, c.want)
		}
	}
}

func testSeekEmpty(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	for range 2 {
		next := r.bounds(1).Next
		if got := r.seek(1, eventlog.Goal{At: 0}); got != next {
			t.Errorf("by time: %d, want %d", got, next)
		}
		if got := r.seek(1, eventlog.Goal{Bytes: 1}); got != next {
			t.Errorf("by bytes: %d, want %d", got, next)
		}
		r.publish(batch(1, 7, 10))
		r.trim(1, 7+next)
	}
	if _, err := seekOne(r.ctx, r.store, 2, eventlog.Goal{}); !errors.Is(err, eventlog.ErrNoPartition) {
		t.Errorf("in no partition: %v, want ErrNoPartition", err)
	}
}

func testSeekRandom(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	r.openPartitions(1)
	var total int64
	for range 30 {
		var batches []eventlog.Batch
		for range 1 + random.IntN(5) {
			size := 1 + random.IntN(3000)
			total += int64(size)
			batches = append(batches, eventlog.Batch{
				Partition: 1, Records: 1 + random.Int32N(20), MaxTime: eventlog.Timestamp(random.IntN(1000)), Bytes: make([]byte, size),
			})
		}
		r.publish(batches...)
		if random.IntN(8) == 0 {
			r.trim(1, eventlog.Offset(random.Int64N(int64(r.bounds(1).Next))))
		}
		bounds, held := r.bounds(1), r.all(1)
		goal := eventlog.Goal{At: eventlog.Timestamp(random.IntN(1100)), From: eventlog.Offset(random.Int64N(int64(bounds.Next + 3)))}
		want := bounds.Next
		for _, b := range held {
			if b.MaxTime >= goal.At && b.End() > goal.From {
				want = max(bounds.First, b.Base, goal.From)
				break
			}
		}
		if got := r.seek(1, goal); got != want {
			t.Fatalf("%+v in %+v: %d, want %d", goal, bounds, got, want)
		}
		goal = eventlog.Goal{Bytes: 1 + random.Int64N(total+total/5)}
		want = bounds.First
		left := int64(0)
		for i := len(held) - 1; i >= 0; i-- {
			if left += int64(len(held[i].Bytes)); left >= goal.Bytes {
				want = max(bounds.First, held[i].Base)
				break
			}
		}
		if got := r.seek(1, goal); got != want {
			t.Fatalf("%+v in %+v: %d, want %d", goal, bounds, got, want)
		}
	}
}

func testSeekMany(t *testing.T, h Harness) {
	r := newRig(t, h)
	random := chance(t)
	const partitions, absent = 40, 1_000_000
	for id := range eventlog.Partition(partitions) {
		r.openPartitions(id)
		for range random.IntN(20) {
			r.publish(eventlog.Batch{Partition: id, Records: 1 + random.Int32N(5), MaxTime: eventlog.Timestamp(random.IntN(100)), Bytes: make([]byte, 1+random.IntN(100))})
		}
		if random.IntN(3) == 0 {
			r.trim(id, eventlog.Offset(random.Int64N(int64(r.bounds(id).Next)+1)))
		}
	}
	var goals []eventlog.Goal
	for range 500 {
		goal := eventlog.Goal{Partition: eventlog.Partition(random.IntN(partitions)), At: eventlog.Timestamp(random.IntN(110)), From: eventlog.Offset(random.IntN(30))}
		switch random.IntN(10) {
		case 0:
			goal.Partition = absent
		case 1:
			goal.Bytes = 1 + random.Int64N(1000)
		}
		goals = append(goals, goal)
	}
	found, err := r.store.Seek(r.ctx, goals)
	if err != nil || len(found) != len(goals) {
		t.Fatalf("%d answers to %d goals, %v", len(found), len(goals), err)
	}
	for i, goal := range goals {
		at, err := seekOne(r.ctx, r.store, goal.Partition, goal)
		if found[i].At != at || !errors.Is(found[i].Err, err) {
			t.Errorf("%+v among others: %+v; alone: %d, %v", goal, found[i], at, err)
		}
		if gone := errors.Is(found[i].Err, eventlog.ErrNoPartition); gone != (goal.Partition == absent) {
			t.Errorf("%+v: %v", goal, found[i].Err)
		}
	}
	if found, err := r.store.Seek(r.ctx, nil); err != nil || len(found) != 0 {
		t.Errorf("without a goal: %v, %v", found, err)
	}
}
