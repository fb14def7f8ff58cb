package verify

import (
	"context"
	"errors"

	"github.com/weir-log/weir/eventlog"
)

// checkTopics compares the topics with the partitions.
func checkTopics(ctx context.Context, x *Exam) error {
	bounds, _, err := x.store.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return err
	}
	held := make(map[eventlog.Partition]eventlog.Bounds, len(bounds))
	for _, b := range bounds {
		held[b.Partition] = b
	}
	owned := make(map[eventlog.Partition]int)
	for _, t := range x.Topics {
		for _, p := range t.Partitions {
			if owned[p]++; owned[p] == 1 {
				if _, there := held[p]; there {
					continue
				}
			}
			if err := x.Confirm(ctx, func(v *View) error { return v.partitionOf(ctx, t.ID, p) }); err != nil {
				return err
			}
		}
	}
	for p, b := range held {
		if owned[p] > 0 || p == 0 || b.First == b.Next { // an empty one may be of a topic that is being created, or was
			continue
		}
		if err := x.Confirm(ctx, func(v *View) error { return v.unowned(ctx, p) }); err != nil {
			return err
		}
	}
	return nil
}

// partitionOf sees whether a partition exists and is of one topic.
func (v *View) partitionOf(ctx context.Context, id eventlog.TopicID, p eventlog.Partition) error {
	topics, err := v.Topics(ctx)
	if err != nil {
		return err
	}
	has := 0
	for _, t := range topics {
		for _, other := range t.Partitions {
			if other == p {
				has++
			}
		}
	}
	read, err := v.Read(ctx, p, 0, 0)
	if err != nil {
		return err
	}
	if t, there := topics[id]; !there || t.Deleting() {
		return nil
	}
	place := v.x.Place(p, -1)
	place.Topic = topics[id].Name
	if errors.Is(read.Err, eventlog.ErrNoPartition) {
		v.Find(place, "restore the partition from a backup or a copy", "the topic has the partition %d, which does not exist in the store", p)
	}
	if has > 1 {
		v.Find(place, "an older state of the topics was restored beside newer partitions: restore the whole store from one backup", "%d topics, or one twice, have the partition %d", has, p)
	}
	return nil
}

// unowned sees whether no topic has a partition that exists.
func (v *View) unowned(ctx context.Context, p eventlog.Partition) error {
	read, err := v.Read(ctx, p, 0, 0) // before the topics: a topic is deleted with its partitions
	if err != nil {
		return err
	}
	topics, err := v.Topics(ctx)
	if err != nil || read.Err != nil {
		return err
	}
	for _, t := range topics {
		for _, other := range t.Partitions {
			if other == p {
				return nil
			}
		}
	}
	v.Find(Place{Partition: p, Offset: -1}, "an older state of the topics was restored: restore the whole store from one backup; the events are kept meanwhile",
		"the partition has events and belongs to no topic")
	return nil
}
