package storerow

import "github.com/weir-log/weir/eventlog"

// Sightings compares the bounds of all partitions at one poll with those at earlier ones. It is not
// safe for concurrent use.
type Sightings struct {
	poll       int64
	partitions map[eventlog.Partition]sighting
}

type sighting struct {
	bounds eventlog.Bounds
	poll   int64 // the last poll that found the partition changed
}

// Update takes the result of a poll. It returns what changed after an earlier poll (0: everything),
// and the number of this one. A deleted partition is not in all, and so forgotten.
func (s *Sightings) Update(all []eventlog.Bounds, after int64) (moved []eventlog.Bounds, poll int64) {
	s.poll++
	now := make(map[eventlog.Partition]sighting, len(all))
	for _, bounds := range all {
		at, known := s.partitions[bounds.Partition]
		if !known || at.bounds != bounds {
			at = sighting{bounds, s.poll}
		}
		now[bounds.Partition] = at
		if at.poll > after {
			moved = append(moved, bounds)
		}
	}
	s.partitions = now
	return moved, s.poll
}
