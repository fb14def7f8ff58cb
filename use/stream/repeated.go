package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/weir-log/weir/eventlog"
)

// foundAll looks for an append, to one stream or to several, that was made before. It returns nil
// if there was none. ErrIDReused: the streams have events with these ids and other content.
//
// It costs a store call for all id keys, one for all heads, one for all subjects, one for the first
// events of all streams, and one for each thousand of the other events or 4 MiB of them.
func foundAll(ctx context.Context, parts []Part, ops []*op) ([]Appended, error) {
	ids, err := readIDs(ctx, parts, ops)
	if err != nil {
		return nil, err
	}
	taken := ""
	for _, o := range ops {
		if o.idKey != "" && ids[o.idKey].Version > 0 {
			taken = o.stream
		}
	}
	missing := func() ([]Appended, error) {
		if taken != "" {
			return nil, fmt.Errorf("%w: the events for stream %q were appended before, but those for another stream were not", ErrIDReused, shorten(taken))
		}
		return nil, nil
	}
	results := make([]Appended, len(parts))
	for i, o := range ops {
		first := int64(o.expected)
		if o.idKey != "" && ids[o.idKey].Version > 0 {
			if first, err = strconv.ParseInt(string(ids[o.idKey].Value), 10, 64); err != nil {
				return nil, fmt.Errorf("key %s does not hold a version: %w", o.idKey, err)
			}
		}
		if !o.repeatable || first < 0 || first > math.MaxInt64-int64(len(o.events)) { // no stream is so long
			return missing() // no events need to be read
		}
		results[i] = Appended{First: first, Version: first + int64(len(o.events)), Duplicate: true}
	}
	all, err := haveEvents(ctx, parts, ops, results)
	if err != nil {
		return nil, err
	}
	if !all {
		return missing()
	}
	return results, nil
}

// errOthers ends a read of events: a stream has others.
var errOthers = errors.New("the stream has other events")

// haveEvents reports whether all streams have the events of their appends at the versions given. If
// the id key of an append exists, its events may be gone: then only the id key shows that they were
// appended.
func haveEvents(ctx context.Context, parts []Part, ops []*op, at []Appended) (bool, error) {
	heads, err := readHeads(ctx, parts)
	if err != nil {
		return false, err
	}
	var there []int // the parts whose streams have events of these versions
	for i, o := range ops {
		from, to := Range{From: at[i].First, To: at[i].Version}.within(heads[i])
		if heads[i].exists() && from == at[i].First && to == at[i].Version {
			there = append(there, i)
		} else if o.idKey == "" {
			return false, nil
		}
	}
	var names []string
	for _, i := range there {
		names = append(names, parts[i].Category.subjects(ops[i])...)
	}
	owner := parts[0].Category.owner
	slices.Sort(names)
	secrets, err := owner.readKeys(ctx, slices.Compact(names))
	if err != nil {
		return false, err
	}
	// The first events are read alone: mostly they show that the streams have others.
	for _, firsts := range []bool{true, false} {
		var keys []string
		var of [][2]int // for each key the part, and which of its events
		for _, i := range there {
			for n := range ops[i].events {
				if (n == 0) == firsts {
					keys = append(keys, parts[i].Category.eventKey(parts[i].Stream, at[i].First+int64(n)))
					of = append(of, [2]int{i, n})
				}
			}
		}
		err := owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
			i, n := of[0][0], of[0][1]
			of = of[1:]
			is, err := parts[i].Category.isEvent(ctx, heads[i], secrets, kv, parts[i].Stream, &ops[i].events[n])
			switch {
			case err != nil && len(parts) > 1:
				return parts[i].wrap(err)
			case err == nil && !is && ops[i].idKey == "":
				return errOthers
			}
			return err
		})
		if errors.Is(err, errOthers) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// isEvent reports whether an event that was read has the id of one to be appended. ErrIDReused: it
// has the id, but other content.
func (c *Category) isEvent(ctx context.Context, h head, secrets map[string]subjectKey, kv eventlog.KeyValue, stream string, mine *NewEvent) (bool, error) {
	version, err := versionIn(kv.Key)
	if err != nil {
		return false, err
	}
	if kv.Version == 0 {
		return false, fmt.Errorf("read the events that exist: %w", c.missing(ctx, stream, h, [2]int64{version, version + 1}, 1))
	}
	e, err := eventIn(kv)
	if err != nil || e.ID != mine.ID {
		return false, err
	}
	same := e.Subject == mine.Subject && (e.Subject == "" || len(e.Data) == len(mine.Data)+sealedMore) // also if it cannot be decrypted any more
	if same {
		if err := c.revealWith(secrets, &e); err != nil {
			return false, err
		}
		same = e.sameAs(*mine)
	}
	if !same {
		return false, fmt.Errorf("%w: the event with version %d has the id %q, but other content", ErrIDReused, e.Version, e.ID)
	}
	return true, nil
}

// readIDs reads the id keys of all operations that have one, with one read.
func readIDs(ctx context.Context, parts []Part, ops []*op) (map[string]eventlog.KeyValue, error) {
	var keys []string
	for _, o := range ops {
		if o.idKey != "" {
			keys = append(keys, o.idKey)
		}
	}
	ids := make(map[string]eventlog.KeyValue, len(keys))
	return ids, parts[0].Category.owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		ids[kv.Key] = kv
		return nil
	})
}
