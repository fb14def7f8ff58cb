package publish

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// note is the value of an idempotency key, which describes the events published under it:
//
//	2c26b46b… 2 0*3,5,0 @17
//	│         │ │       └── the offset of the first event; the first offsets in other partitions are in keys of their own
//	│         │ └────────── the partition of each event: three went to 0, one to 5, one to 0
//	│         └──────────── how many partitions, over all topics
//	└────────────────────── SHA-256 of the events
type note struct {
	digest     string
	batches    int
	partitions []int32
}

// String returns the value without the offset, which the store appends.
func (n note) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %d ", n.digest, n.batches)
	for i := 0; i < len(n.partitions); {
		run := 1
		for i+run < len(n.partitions) && n.partitions[i+run] == n.partitions[i] {
			run++
		}
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(strconv.Itoa(int(n.partitions[i])))
		if run > 1 {
			fmt.Fprintf(&s, "*%d", run)
		}
		i += run
	}
	s.WriteString(" @")
	return s.String()
}

func parseNote(s string) (n note, base eventlog.Offset, err error) {
	fields := strings.Fields(s)
	if len(fields) != 4 {
		return n, 0, fmt.Errorf("%d fields, want 4", len(fields))
	}
	n.digest = fields[0]
	if n.batches, err = strconv.Atoi(fields[1]); err != nil {
		return n, 0, err
	}
	for run := range strings.SplitSeq(fields[2], ",") {
		number, times, repeated := strings.Cut(run, "*")
		partition, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return n, 0, err
		}
		count := 1
		if repeated {
			if count, err = strconv.Atoi(times); err != nil || count > bytesMax {
				return n, 0, fmt.Errorf("partition %s is repeated %q times", number, times)
			}
		}
		for range count {
			n.partitions = append(n.partitions, int32(partition))
		}
	}
	base, err = parseBase(fields[3])
	return n, base, err
}

// parseBase reads an offset that the store appended.
func parseBase(s string) (eventlog.Offset, error) {
	digits, ok := strings.CutPrefix(s, "@")
	if !ok {
		return 0, fmt.Errorf("%q does not begin with @", s)
	}
	o, err := strconv.ParseInt(digits, 10, 64)
	return eventlog.Offset(o), err
}

// placed returns where each event went, given each partition's first offset.
func (n note) placed(events []Event, bases []eventlog.Offset) []Placed {
	type place struct {
		topic  string
		number int32
	}
	lanes := make(map[place]int)
	placed := make([]Placed, len(events))
	for i, number := range n.partitions {
		at, seen := lanes[place{events[i].Topic, number}]
		if !seen {
			at = len(lanes)
			lanes[place{events[i].Topic, number}] = at
		}
		placed[i] = Placed{Partition: number, Offset: bases[at]}
		bases[at]++
	}
	return placed
}
