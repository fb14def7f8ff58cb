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

// parseResets reads {"offsets": [{"topic": …, "partition": …, "offset": …}, …]}.
func parseResets(body []byte) (resets []reset, err error) {
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) error {
			if name != "offsets" {
				return r.unknown(name, "offsets")
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
	return resets, err
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

// resolve finds the offsets of a reset. It costs one store call, and two more per partition if the reset is to a time.
func (s *Server) resolve(ctx context.Context, t eventlog.Topic, want reset) ([]group.Committed, error) {
	first, partitions := int32(0), t.Partitions
	if want.partition != nil {
		first = *want.partition
		if int(first) >= len(t.Partitions) {
			return nil, noSuchPartition(t, int64(first))
		}
		partitions = t.Partitions[first : first+1]
	}
	epoch := s.cfg.Log.LeaderEpoch() // read before the offsets: if the store is rewound meanwhile, readers that start at them with this epoch notice it
	bounds, err := s.cfg.Log.Bounds(ctx, partitions...)
	if err != nil {
		return nil, err
	}
	var out []group.Committed
	for i, b := range bounds {
		if b.Err != nil {
			return nil, b.Err
		}
		o := group.Committed{TopicPartition: group.TopicPartition{Topic: t.ID, Partition: first + int32(i)}, Name: t.Name, LeaderEpoch: epoch, Offset: want.offset}
		switch want.to {
		case "earliest":
			o.Offset = b.Bounds.First
		case "latest":
			o.Offset = b.Bounds.Next
		case "time":
			if o.Offset, err = s.since(ctx, b.Bounds, want.timestamp); err != nil {
				return nil, err
			}
		default:
			if o.Offset < b.Bounds.First || o.Offset > b.Bounds.Next {
				return nil, in(t.Name, o.Partition, &eventlog.RangeError{Partition: b.Bounds.Partition, Asked: o.Offset, First: b.Bounds.First, Next: b.Bounds.Next})
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// since finds the first record that is not older than a time; the end if there is none.
func (s *Server) since(ctx context.Context, b eventlog.Bounds, at eventlog.Timestamp) (eventlog.Offset, error) {
	found, there, err := s.cfg.Log.OffsetAt(ctx, b.Partition, at)
	var damaged *eventlog.DamagedError
	if errors.As(err, &damaged) {
		return damaged.From, nil // readers that start there get the error
	}
	if err != nil || !there {
		return b.Next, err
	}
	return eventlog.Offset(found.Offset), nil
}
