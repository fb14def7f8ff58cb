package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/group"
)

// Group is a consumer group as it is in the store, whatever protocol its members use.
type Group struct {
	Name    string
	State   string // as Kafka names it: Empty, Stable, …
	Members []Member
	Offsets []GroupOffset // where it has committed an offset, and the other partitions that its members have; sorted by topic and partition
	Lag     int64         // the sum of the lags in Offsets
}

// Member is one consumer of a group.
type Member struct {
	ID, Name, Host string
}

// GroupOffset is a group's committed offset and lag in one partition.
type GroupOffset struct {
	TopicPartition
	Committed   int64 // offset of the next event to be handled; 0 if nothing is committed
	First, Next int64 // the partition holds the offsets from First up to, but not including, Next
	Lag         int64 // how many events are still to be handled
}

// Groups lists the names of all groups.
func (l *Log) Groups(ctx context.Context) ([]string, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "list groups")
	}
	listed, err := l.groups.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(listed))
	for i, g := range listed {
		names[i] = g.Group
	}
	return names, nil
}

// Group describes a group; ErrUnknownGroup if there is none. It costs a few store calls.
func (l *Log) Group(ctx context.Context, name string) (Group, error) {
	if err := l.usable(); err != nil {
		return Group{}, wrap(err, "describe group %q", name)
	}
	d, err := l.groups.Describe(ctx, name)
	if err != nil {
		return Group{}, err
	}
	g := Group{Name: name, State: string(d.State)}
	for _, m := range d.Members {
		g.Members = append(g.Members, Member{ID: m.ID, Name: m.ClientID, Host: m.ClientHost})
	}
	committed, err := l.groups.Fetch(ctx, name, nil)
	if err != nil {
		return Group{}, err
	}
	if committed, err = l.groups.Begun(ctx, d.Members, committed); err != nil {
		return Group{}, err
	}
	lags, err := l.groups.Lags(ctx, name, committed)
	if err != nil {
		return Group{}, err
	}
	for _, lag := range lags {
		g.Offsets = append(g.Offsets, GroupOffset{
			TopicPartition: TopicPartition{Topic: lag.Name, Partition: lag.Partition},
			First:          int64(lag.Bounds.First), Next: int64(lag.Bounds.Next), Committed: int64(lag.Offset), Lag: lag.Records,
		})
		g.Lag += lag.Records
	}
	return g, nil
}

// ResetGroup moves a group to another position in a topic: in all partitions of the topic, or in
// those named. It creates the group if there is none. ErrGroupInUse while the group has members:
// close its consumers, or let each of them Seek.
func (l *Log) ResetGroup(ctx context.Context, name, topic string, to Position, partitions ...int32) error {
	what := func(err error) error { return wrap(err, "reset group %q in topic %q to %v", name, topic, to) }
	if err := l.usable(); err != nil {
		return what(err)
	}
	t, err := l.log.Topic(ctx, topic)
	if err != nil {
		return what(err)
	}
	if len(partitions) == 0 {
		for n := range t.Partitions {
			partitions = append(partitions, int32(n))
		}
	}
	places := make([]deliver.Place, len(partitions))
	for i, n := range partitions {
		if n < 0 || int(n) >= len(t.Partitions) {
			return what(fmt.Errorf("the topic has no partition %d: it has %d partitions, numbered from 0", n, len(t.Partitions)))
		}
		places[i] = deliver.Place{TopicPartition: deliver.TopicPartition{Topic: topic, Partition: n}, ID: t.Partitions[n]}
	}
	epoch := l.log.LeaderEpoch() // read before the offsets: if the store is rewound meanwhile, consumers that start at these offsets are sent back to the new end of their partition
	offsets, err := to.at.Resolve(ctx, l.log, places)
	if err != nil {
		return what(err)
	}
	commit := group.Commit{Group: name, Generation: -1}
	for i, n := range partitions {
		commit.Offsets = append(commit.Offsets, group.Committed{
			TopicPartition: group.TopicPartition{Topic: t.ID, Partition: n}, Name: topic, Offset: offsets[i], LeaderEpoch: epoch,
		})
	}
	_, err = l.groups.Commit(ctx, commit)
	if errors.Is(err, group.ErrUnknownMember) {
		err = fmt.Errorf("%w: close its consumers, or let each of them Seek (%w)", ErrGroupInUse, err)
	}
	return what(err)
}

// DeleteGroup deletes a group and its offsets: a new consumer of that group starts at
// Subscription.Start. ErrGroupInUse while it has members.
func (l *Log) DeleteGroup(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "delete group %q", name)
	}
	return l.groups.Delete(ctx, name)
}
