package httpapi

import (
	"context"
	"errors"
	"math"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// reset is a new offset of a group: in one partition, or in all of a topic.
type reset struct {
	topic     string
	partition *int32
	offset    eventlog.Offset // the new offset, if to is ""
	to        string          // "earliest", "latest", or "time": the first event not before timestamp
	timestamp eventlog.Timestamp
}

// parseResets reads {"offsets": [{"topic": …, "partition": …, "offset": …}, …], "dry_run": …}.
func parseResets(body []byte) (resets []reset, dry bool, err error) {
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) (err error) {
			switch name {
			case "dry_run":
				dry, err = r.boolean()
				return err
			case "offsets":
			default:
				return r.unknown(name, "offsets", "dry_run")
			}
			return r.array(func(int) error {
				if len(resets) == eventsMax {
					return kindTooLarge.past(eventsMax, "the request has more than %d offsets, the limit", eventsMax)
				}
				one, err := parseReset(r)
				resets = append(resets, one)
				return err
			})
		})
	})
	if err == nil && len(resets) == 0 {
		err = kindInvalidJSON.because(`"offsets" is missing or empty`)
	}
	return resets, dry, err
}

func parseReset(r *jsonReader) (one reset, err error) {
	goals := 0
	err = r.object(func(name string) (err error) {
		switch name {
		case "topic":
			one.topic, err = r.string()
		case "partition":
			var n int64
			n, err = r.integer(0, math.MaxInt32)
			p := int32(n)
			one.partition = &p
		case "offset":
			goals++
			if r.peek() != '"' {
				var n int64
				n, err = r.integer(0, math.MaxInt64)
				one.offset = eventlog.Offset(n)
				return err
			}
			start := *r
			if one.to, err = r.string(); err == nil && one.to != "earliest" && one.to != "latest" {
				*r = start
				err = r.fail(`%q: an offset must be a whole number, "earliest" or "latest"`, shorten(one.to))
			}
		case "timestamp":
			goals++
			var n int64
			n, err = r.integer(0, timestampMax)
			one.to, one.timestamp = "time", eventlog.Timestamp(n)
		default:
			err = r.unknown(name, "topic", "partition", "offset", "timestamp")
		}
		return err
	})
	switch {
	case err != nil:
	case one.topic == "":
		err = r.fail("the topic is missing")
	case goals != 1:
		err = r.fail("give either offset or timestamp")
	}
	return one, err
}

// resolve finds the offsets of resets: one store call for the bounds of all partitions, and, for
// those that are reset to a time, what OffsetsAt costs. A partition that is named twice is refused
// before.
func (s *Server) resolve(ctx context.Context, asked []reset, topicOf func(name string) (eventlog.Topic, error)) ([]group.Committed, error) {
	epoch := s.cfg.Log.LeaderEpoch() // read before the offsets: if the store is rewound meanwhile, readers that start at them with this epoch notice it
	var out []group.Committed
	var wants []reset // of each in out
	var ps []eventlog.Partition
	given := make(map[group.TopicPartition]bool)
	for _, want := range asked {
		t, err := topicOf(want.topic)
		if err != nil {
			return nil, err
		}
		first, partitions := int32(0), t.Partitions
		if want.partition != nil {
			first = *want.partition
			if int(first) >= len(t.Partitions) {
				return nil, noSuchPartition(t, int64(first))
			}
			partitions = t.Partitions[first : first+1]
		}
		for i, p := range partitions {
			tp := group.TopicPartition{Topic: t.ID, Partition: first + int32(i)}
			if given[tp] {
				return nil, kindInvalidRequest.because("partition %d of topic %s is in the request twice; give it once. Nothing was changed", tp.Partition, t.Name)
			}
			given[tp] = true
			out = append(out, group.Committed{TopicPartition: tp, Name: t.Name, LeaderEpoch: epoch, Offset: want.offset})
			wants, ps = append(wants, want), append(ps, p)
		}
	}
	bounds, err := s.cfg.Log.Bounds(ctx, ps...)
	if err != nil {
		return nil, err
	}
	var goals []eventlog.Goal
	var timed []int // indexes in out
	for i, b := range bounds {
		if b.Err != nil {
			return nil, b.Err
		}
		switch o := &out[i]; wants[i].to {
		case "earliest":
			o.Offset = b.Bounds.First
		case "latest":
			o.Offset = b.Bounds.Stable()
		case "time":
			o.Offset = b.Bounds.Stable() // replaced below if the partition has such a record
			goals, timed = append(goals, eventlog.Goal{Partition: ps[i], At: wants[i].timestamp}), append(timed, i)
		default:
			if o.Offset < b.Bounds.First || o.Offset > b.Bounds.Next {
				return nil, in(o.Name, o.Partition, &eventlog.RangeError{Partition: ps[i], Asked: o.Offset, First: b.Bounds.First, Next: b.Bounds.Next})
			}
		}
	}
	found, err := s.cfg.Log.OffsetsAt(ctx, goals)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		o := &out[timed[i]]
		var damaged *eventlog.DamagedError
		switch {
		case errors.As(f.Err, &damaged):
			o.Offset = damaged.From // readers that start there get the error
		case f.Err != nil:
			return nil, in(o.Name, o.Partition, f.Err)
		case f.There:
			o.Offset = eventlog.Offset(f.Offset)
		}
	}
	return out, nil
}
