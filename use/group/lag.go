package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// Lag is a group's lag in one partition.
type Lag struct {
	Group string
	Committed
	Bounds  eventlog.Bounds // what the partition holds
	Records int64           // how many records the partition holds that the group has not committed
}

// Lags returns the lag of each of a group's committed offsets, except for topics that were deleted,
// with one store call at most.
func (c *Coordinator) Lags(ctx context.Context, group string, committed []Committed) ([]Lag, error) {
	var lags []Lag
	for _, o := range committed {
		lags = append(lags, Lag{Group: group, Committed: o})
	}
	lags, err := c.measure(ctx, lags)
	if err != nil {
		return nil, fmt.Errorf("lag of group %q: %w", group, err)
	}
	return lags, nil
}

// Begun adds to a group's committed offsets those partitions that its members have and in which it
// has committed nothing, at offset 0: it is behind by all there is.
func (c *Coordinator) Begun(ctx context.Context, members []Member, committed []Committed) ([]Committed, error) {
	seen := make(map[TopicPartition]bool, len(committed))
	for _, o := range committed {
		seen[o.TopicPartition] = true
	}
	for _, m := range members {
		for name, numbers := range m.Partitions() {
			topic, err := c.log.Topic(ctx, name)
			if errors.Is(err, eventlog.ErrUnknownTopic) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, n := range numbers {
				if tp := (TopicPartition{topic.ID, n}); !seen[tp] {
					seen[tp] = true
					committed = append(committed, Committed{TopicPartition: tp, Name: name, LeaderEpoch: -1})
				}
			}
		}
	}
	slices.SortFunc(committed, func(a, b Committed) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
	return committed, nil
}

// measure completes lags, and drops those of topics that were deleted.
func (c *Coordinator) measure(ctx context.Context, lags []Lag) ([]Lag, error) {
	var partitions []eventlog.Partition // each once: many groups may read it
	at := make(map[eventlog.Partition]int)
	known := lags[:0]
	for _, lag := range lags {
		topic, err := c.log.TopicByID(lag.Topic)
		if err != nil || int(lag.Partition) >= len(topic.Partitions) {
			continue
		}
		lag.Name, lag.Bounds.Partition = topic.Name, topic.Partitions[lag.Partition]
		if _, is := at[lag.Bounds.Partition]; !is {
			at[lag.Bounds.Partition] = len(partitions)
			partitions = append(partitions, lag.Bounds.Partition)
		}
		known = append(known, lag)
	}
	if len(known) == 0 {
		return nil, nil
	}
	bounds, err := c.log.Bounds(ctx, partitions...)
	if err != nil {
		return nil, err
	}
	for i := range known {
		l := &known[i]
		l.Bounds = bounds[at[l.Bounds.Partition]].Bounds
		l.Records = l.Bounds.Lag(l.Offset)
	}
	return known, nil
}

// Stat is a group's size, for metrics.
type Stat struct {
	Group   string
	State   State
	Members int
}

// Stats returns all groups and their lag: one trip per thousand groups, owners, peers and offsets,
// one per 64 topics in which a group began at the end, and one for the ends of the partitions. If
// the lag alone cannot be read it returns the groups, and an error.
func (c *Coordinator) Stats(ctx context.Context) ([]Stat, []Lag, error) {
	seen, err := c.survey(ctx, Filter{Prefixes: AllPrefixes, held: true})
	if err != nil {
		return nil, nil, fmt.Errorf("sizes of groups: %w", err)
	}
	stats := slices.SortedFunc(maps.Values(seen), func(a, b surveyed) int { return strings.Compare(a.Group, b.Group) })
	out := make([]Stat, len(stats))
	for i, s := range stats {
		out[i] = Stat{s.Group, s.State, s.members}
	}
	// A partition in which a group began, or which its peers have, counts unless the group has
	// committed an offset there. Offsets are noted for such groups alone: of very many most have
	// committed all that they read.
	var more []Lag
	err = begun(ctx, c.log, startPrefix, func(name string, began stored) error {
		for n := range began.ends {
			if o, is := began.at(int32(n)); is {
				more = append(more, Lag{Group: name, Committed: o})
			}
		}
		return nil
	})
	if err != nil {
		return out, nil, err
	}
	for _, s := range stats {
		for _, tp := range s.held { // nothing is committed: they are behind by all records
			more = append(more, Lag{Group: s.Group, Committed: Committed{TopicPartition: tp}})
		}
	}
	known := make(map[string]map[TopicPartition]bool)
	for _, lag := range more {
		if known[lag.Group] == nil {
			known[lag.Group] = make(map[TopicPartition]bool)
		}
	}
	var lags []Lag
	err = c.log.ListAll(ctx, offsetPrefix, func(kv eventlog.KeyValue) error {
		name, o, err := parseOffset(kv)
		if err == nil {
			lags = append(lags, Lag{Group: name, Committed: o.Committed})
			if known[name] != nil {
				known[name][o.TopicPartition] = true
			}
		}
		return err
	})
	if err != nil {
		return out, nil, err
	}
	for _, lag := range more {
		if !known[lag.Group][lag.TopicPartition] {
			known[lag.Group][lag.TopicPartition] = true
			lags = append(lags, lag)
		}
	}
	if lags, err = c.measure(ctx, lags); err != nil {
		return out, nil, fmt.Errorf("lag of groups: %w", err)
	}
	return out, lags, nil
}
