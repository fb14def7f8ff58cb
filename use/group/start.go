package group

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

const (
	startPrefix = "group/start/"
	// allPartitions stands for all partitions of a topic: OffsetKey then is the key of where the
	// group began in the topic.
	allPartitions int32 = -1
	// startBytes is about how many bytes the starts of a group in a topic have at most: 10,000
	// offsets.
	startBytes = 200 << 10
	// startsPage and startsFew are how many such keys one trip reads: without and with counted
	// memory.
	startsPage, startsFew = 64, 2
)

// storedStart is where a group that begins at the end began in a topic: one key for all partitions,
// so that a group that has read nothing costs as little in a topic of 10,000 partitions as in one
// of a few. An offset that the group commits counts instead. Partitions that are not listed were
// added later: they are read from their first offset.
type storedStart struct {
	Topic       string            `json:"topic"`
	LeaderEpoch int32             `json:"leader_epoch"`
	Ends        []eventlog.Offset `json:"ends"` // by partition; -1: its first offset
}

func startKeysOf(group string) string { return startPrefix + url.PathEscape(group) + "/" }

// parseStart reads where a group began in a topic, as the offset of all its partitions.
func parseStart(kv eventlog.KeyValue) (group string, o stored, err error) {
	escaped, topic, _ := strings.Cut(strings.TrimPrefix(kv.Key, startPrefix), "/")
	group, err = url.PathUnescape(escaped)
	id, err2 := hex.DecodeString(topic)
	if err = cmp.Or(err, err2); err != nil || len(id) != len(o.Topic) {
		return "", o, fmt.Errorf("key %q: not a group and a topic id (%w)", kv.Key, err)
	}
	var s storedStart
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return "", o, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	o.TopicPartition = TopicPartition{eventlog.TopicID(id), allPartitions}
	o.Name, o.Offset, o.LeaderEpoch, o.ends, o.age = s.Topic, -1, s.LeaderEpoch, s.Ends, kv.Age
	return group, o, nil
}

func (s storedStart) encode() []byte {
	value, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("start %+v: %v", s, err)) // numbers and strings always encode
	}
	return value
}

// at returns where the group began in one partition; false: with its first offset.
func (o stored) at(partition int32) (Committed, bool) {
	if o.Partition != allPartitions || int(partition) >= len(o.ends) || partition < 0 || o.ends[partition] < 0 {
		return Committed{}, false
	}
	return Committed{TopicPartition: TopicPartition{o.Topic, partition}, Name: o.Name, Offset: o.ends[partition], LeaderEpoch: o.LeaderEpoch}, true
}

// begun visits where a group began, in each topic in which it began at the end: one trip, and one
// per 64 such topics.
func begun(ctx context.Context, log *eventlog.Log, prefix string, visit func(group string, o stored) error) error {
	return log.ListPages(ctx, prefix, startsPage, nil, func(kv eventlog.KeyValue) error {
		group, o, err := parseStart(kv)
		if err == nil {
			err = visit(group, o)
		}
		return err
	})
}

// start is a partition in which the group begins: at its first offset, or at its end.
type start struct {
	TopicPartition
	name string
	log  eventlog.Partition
	end  bool
	kept bool // it is to be stored, in the key that has the ends of all partitions of the topic
}

// addStarts adds the start of a partition in which the group has no position. If the group has a
// position elsewhere in the topic, the partition is read from its first offset: a group that begins
// at the end has remembered the ends of all partitions.
func (p *Peer) addStarts(starts []start, topic eventlog.Topic, tp TopicPartition, begun bool) []start {
	if begun || !p.cfg.FromLatest {
		return append(starts, start{TopicPartition: tp, name: topic.Name, log: topic.Partitions[tp.Partition]})
	}
	if slices.ContainsFunc(starts, func(s start) bool { return s.Topic == tp.Topic }) {
		return starts
	}
	for n, log := range topic.Partitions {
		starts = append(starts, start{TopicPartition{topic.ID, int32(n)}, topic.Name, log, n < p.before[topic.ID], true})
	}
	return starts
}

// begin finds the offsets at which the group begins. In a topic that is being deleted the offset is
// −1.
//
// It writes nothing for a group that begins at the beginning: until the group's first commit each
// peer finds the same place. A group that begins at the end must remember where that was, or
// records before its first commit would be skipped if the peer dies: it puts the ends of a topic's
// partitions into one key.
func (p *Peer) begin(ctx context.Context, r membership, starts []start, epoch int32) (map[TopicPartition]eventlog.Offset, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	ps := make([]eventlog.Partition, len(starts))
	for i, s := range starts {
		ps[i] = s.log
	}
	found, err := p.log.Bounds(ctx, ps...)
	if err != nil {
		return nil, fmt.Errorf("read where to begin: %w (%w)", ErrUnavailable, err)
	}
	begins := make(map[TopicPartition]eventlog.Offset, len(starts))
	ends := make(map[eventlog.TopicID]*storedStart)
	for i, s := range starts {
		at := found[i].Bounds.First
		switch {
		case found[i].Err != nil:
			at = -1
		case s.end:
			at = found[i].Bounds.Stable()
		case p.cfg.FromZero:
			at = 0
		}
		begins[s.TopicPartition] = at
		if !s.kept {
			continue
		}
		if ends[s.Topic] == nil {
			ends[s.Topic] = &storedStart{Topic: s.name, LeaderEpoch: epoch}
		}
		if s.end { // true for the first partitions of the topic, so that Ends is in the order of their numbers
			ends[s.Topic].Ends = append(ends[s.Topic].Ends, at)
		}
	}
	if len(ends) == 0 {
		return begins, nil
	}
	e := eventlog.Entry{Checks: []eventlog.Check{{Key: StateKey(p.cfg.Group), Version: r.version}}}
	for topic, of := range ends {
		key := OffsetKey(p.cfg.Group, TopicPartition{topic, allPartitions})
		e.Checks = append(e.Checks, eventlog.Check{Key: key}) // it does not exist: not even a commit in flight has put it
		e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: r.version, Value: of.encode()})
	}
	if _, err = p.log.Append(ctx, e); err != nil {
		if errors.Is(err, eventlog.ErrStale) {
			poke(p.wake)
		}
		return nil, fmt.Errorf("remember where the group begins: %w (%w)", ErrUnavailable, err)
	}
	return begins, nil
}
