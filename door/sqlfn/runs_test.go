package sqlfn

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A run is one row: the place of each of its messages follows from that of the first.
func TestARunHasOnlyMessagesWhoseIDsAndOffsetsFollowEachOther(t *testing.T) {
	at := time.UnixMilli(1)
	first := queue.Going{Batch: 1, Record: 5}
	if runs := addRun(addRun(nil, 10, first, at), 11, queue.Going{Batch: 1, Record: 6}, time.Time{}); len(runs) != 2 {
		t.Errorf("a message is in a run with one that is delayed: %+v", runs)
	}
	for _, c := range []struct {
		id   int64
		to   queue.Going
		due  time.Time
		want string
	}{
		{11, queue.Going{Batch: 1, Record: 6}, time.Time{}, "10-11"},
		{12, queue.Going{Batch: 1, Record: 7}, time.Time{}, "10-10 12-12"},
		{12, queue.Going{Batch: 1, Record: 6}, time.Time{}, "10-10 12-12"},
		{11, queue.Going{Batch: 1, Record: 7}, time.Time{}, "10-10 11-11"},
		{11, queue.Going{Batch: 2, Record: 6}, time.Time{}, "10-10 11-11"},
		{11, queue.Going{Batch: -1, At: queue.MessageID{Partition: 1, Offset: 6}}, time.Time{}, "10-10 11-11"},
		{11, queue.Going{Batch: 1, Record: 6}, at, "10-10 11-11"},
	} {
		got := ""
		for _, r := range addRun(addRun(nil, 10, first, time.Time{}), c.id, c.to, c.due) {
			got += fmt.Sprintf(" %d-%d", r.first, r.last)
		}
		if got != " "+c.want {
			t.Errorf("after 10 at %+v, %d at %+v (%v): runs%s, want %s", first, c.id, c.to, c.due, got, c.want)
		}
	}
}
