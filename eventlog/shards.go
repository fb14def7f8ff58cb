package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A store may be made of several stores, its shards: store/shard. The log and the uses know no more
// of that than this file says.

const (
	// shardShift is where the number of a partition's shard begins in the partition's number. The
	// bits below are the number that the log assigned: they suffice for epochNumbers of all epochs.
	// Partitions of a store without shards are on shard 0.
	shardShift = 52

	// ShardsMax bounds the shards of a store.
	ShardsMax = 256

	// ShardKey is in each shard. It says to which set the shard belongs, and which number it has
	// there. No log opens a store that has this key: it opens the set.
	ShardKey = EpochKey + "/shard"
)

// ErrSpansShards: the parts of an entry live on several shards, and no change spans shards. Nothing
// happened, and trying again does not help.
var ErrSpansShards = errors.New("the change spans shards")

// Shard returns the shard that a partition's number names: the one where the partition was created.
// It is still there unless it was moved; Sharded.ShardWith knows where it is.
func (p Partition) Shard() int { return int(p >> shardShift) }

// On returns a partition's number with another shard in it.
func (p Partition) On(shard int) Partition { return p.assigned() | Partition(shard)<<shardShift }

// Moved returns the number that a partition has on the shard to which its n-th move takes it; n
// counts from 1. Only the set knows these numbers: a store never gets a number twice, also if a
// partition comes back to it.
func (p Partition) Moved(n int) Partition { return p.assigned() | Partition(ShardsMax-1+n)<<shardShift }

// MovesMax bounds how often one partition can begin to move.
const MovesMax = 1<<(63-shardShift) - ShardsMax

// assigned returns the number that the log assigned, without the shard.
func (p Partition) assigned() Partition { return p & (1<<shardShift - 1) }

// Sharded is an optional interface: a store that is made of several stores, its shards.
//
// An entry of such a store must live on one shard: its checks and puts, its batches with records,
// and its Replaces. Otherwise its Outcome is ErrSpansShards. Two things may live elsewhere:
// partitions that the entry creates, which are created first, empty; and Forgets, which are deleted
// first, even if the entry is then refused. If the process ends in between, empty partitions are
// left that no topic has, and the log deletes them when it enters an incarnation; or a topic is
// left that lacks partitions, and the log completes its deletion.
//
// A shard that does not answer does not fail the calls about others: Outcome.Err and Slice.Err
// match ErrUnavailable or ErrUnsure then, and Changes leaves its changes out until it answers. A
// call notices a rewind of the shards that it asks, Changes that of every shard.
type Sharded interface {
	// Shards returns how many shards there are. They are numbered from 0.
	Shards() int
	// ShardOf returns the shard where a key is, or would be.
	ShardOf(key string) (int, error)
	// ShardStore returns the store of a shard, for what lives beside the log there. ErrUnavailable:
	// the shard has not answered yet.
	ShardStore(shard int) (Store, error)
	// Unheard reports whether a partition is on a shard that did not answer the last Changes from
	// the zero mark: that call returned bounds of the partition that were read earlier, or none.
	Unheard(p Partition) bool
	// Intact reports whether, by the last Changes from the zero mark, a partition is on a shard
	// that has lost nothing since a leader epoch began, as far as the shard knows. since is the
	// Incarnation.Store in which that epoch began. An Unheard partition counts as intact, unless it
	// is on no shard of the set.
	Intact(p Partition, since string) bool
	// ShardWith returns the shard where a partition is.
	ShardWith(p Partition) int
	// Refusal returns why changes of a partition are refused now, because it moves: ErrUnavailable;
	// nil: they are not. After its move it may be on another shard.
	Refusal(p Partition) error
}

// Placement says where a partition of a store made of shards is, and whether it moves.
//
//	"" ─► copying ─► closed ─► left ─► ""
//	         on Shard             on Shard, which was Other before
type Placement struct {
	Shard int       `json:"shard"`
	ID    Partition `json:"id"`              // its number on Shard
	Moves int       `json:"moves,omitempty"` // how many moves have begun

	Move    MoveState `json:"move,omitempty"`
	Other   int       `json:"other,omitempty"`    // MoveCopying and MoveClosed: where the partition moves to. MoveLeft: where it was
	OtherID Partition `json:"other_id,omitempty"` // its number on Other
	By      string    `json:"by,omitempty"`       // the id of who moves it

	Version Version `json:"-"` // the version of the key in which the set keeps the placement; 0: there is none, no move has begun
}

// Placements are the placements of the partitions that were moved or move.
type Placements map[Partition]Placement

// Of returns the placement of a partition, also of one that never moved.
func (all Placements) Of(p Partition) Placement {
	if at, is := all[p]; is {
		return at
	}
	return Placement{Shard: p.Shard(), ID: p}
}

// Placing is a change of a partition's placement. From is the present placement.
type Placing struct {
	Partition Partition
	From, To  Placement
}

// MoveState is how far the move of a partition has come. "": it does not move.
type MoveState string

const (
	MoveCopying MoveState = "copying" // it is copied to the other shard, and in use
	MoveClosed  MoveState = "closed"  // its last records are copied: it can be read, and changes are refused with ErrUnavailable
	MoveLeft    MoveState = "left"    // it is moved, and the other shard may still have it
)

// KeyRule says where the keys under a prefix live if the store is made of shards. Keys without a
// rule live on shard 0. A rule never changes, and a prefix that was in use gets no rule: keys that
// exist do not move.
type KeyRule struct {
	Prefix string
	By     KeyPart
}

// KeyPart is the part of a key that decides where it lives.
type KeyPart int

const (
	// ByFirst: the part after the prefix, up to the next slash: the name of a group, or the id of a
	// topic. All keys with the same part are on one shard, whatever their prefixes.
	ByFirst KeyPart = iota
	// ByPartition: the number after the last slash is that of a partition, and the key is on its
	// shard.
	ByPartition
)

// KeyRules are the rules for the keys of the log itself.
func KeyRules() []KeyRule {
	return []KeyRule{{producerPrefix, ByPartition}, {CompactPrefix, ByPartition}}
}

// EpochStore returns the Incarnation.Store in which the newest epoch began, from the value of
// EpochKey; "": there is no epoch yet.
func EpochStore(kv KeyValue) (string, error) {
	record, err := parseEpochs(kv)
	if err != nil {
		return "", err
	}
	return record.Store, nil
}

// heard returns the bounds without those of partitions whose shard did not answer: they are old.
func (l *Log) heard(bounds []Bounds) []Bounds {
	sharded, is := As[Sharded](l.store)
	if !is {
		return bounds
	}
	return slices.DeleteFunc(slices.Clone(bounds), func(b Bounds) bool { return sharded.Unheard(b.Partition) })
}

// withoutLost returns the bounds with which the log enters an incarnation. It leaves out a
// partition whose shard did not answer if an epoch that this log did not know says that less is
// left of the partition than its bounds say, or if the log left it out before. With such old bounds
// the log would take the shard, once it answers, for one that was rewound just now. It would begin
// another epoch, although others may have appended in the present one by then.
func (l *Log) withoutLost(before *incarnation, bounds []Bounds, record *epochRecord) []Bounds {
	sharded, is := As[Sharded](l.store)
	if !is || before == nil {
		return bounds
	}
	known := before.epochs.newest()
	return slices.DeleteFunc(slices.Clone(bounds), func(b Bounds) bool {
		if !sharded.Unheard(b.Partition) {
			return false
		}
		_, has := l.tail.known(b.Partition)
		return !has || record.lostBelow(b.Partition, b.Next, known)
	})
}

// startsOn returns the bounds at which a leader epoch begins, and what its entry checks. since is
// the Incarnation.Store in which the newest epoch began that the store or this process knows.
//
// On a store made of shards the epoch begins only in the partitions of shards that may have lost
// something: those that are not Intact, those with a partition in rewound and, if epochs were lost,
// shard 0. In other partitions the start is notBegun. Other processes append there until they hear
// of the epoch: any other start would be too low, and clients would read again what they have read.
// If a shard that did not answer turns out to be rewound, another epoch begins.
func (l *Log) startsOn(ctx context.Context, bounds []Bounds, rewound []Partition, epochsLost bool, since string) ([]Bounds, []Check, error) {
	sharded, is := As[Sharded](l.store)
	if !is {
		return bounds, nil, nil
	}
	catalog, err := readCatalog(ctx, l.store.List, 0)
	if err != nil {
		return nil, nil, err
	}
	lost := map[int]bool{0: epochsLost}
	for _, p := range rewound {
		lost[sharded.ShardWith(p)] = true
	}
	begins := func(p Partition) bool {
		return !sharded.Unheard(p) && (lost[sharded.ShardWith(p)] || !sharded.Intact(p, since))
	}
	var starts []Bounds
	for _, b := range bounds {
		if begins(b.Partition) {
			starts = append(starts, b)
		}
	}
	for p := range catalog.owner {
		if !begins(p) {
			starts = append(starts, Bounds{Partition: p, Next: notBegun})
		}
	}
	// The check is for a partition that is created meanwhile: without it, the epoch would seem to
	// begin at 0 in that partition.
	return starts, []Check{{Key: catalogKey, Version: catalog.version}}, nil
}

// ShardMark is the value of ShardKey.
type ShardMark struct {
	Set    string `json:"set"`   // the id of the set of shards
	Number int    `json:"shard"` // the number of this shard
	Name   string `json:"name"`  // the shard's URL when it joined, without passwords, for people

	// Only shard 0 has these.
	Shards int `json:"shards,omitempty"` // how many there are
	Homes  int `json:"homes,omitempty"`  // how many shards the set had at first: only these share the keys with a rule ByFirst
}

// ParseShardMark decodes the value of ShardKey.
func ParseShardMark(kv KeyValue) (m ShardMark, err error) {
	if err := json.Unmarshal(kv.Value, &m); err != nil {
		return m, fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
	}
	return m, nil
}

// refuseShard returns the error for opening a store with ShardKey by itself.
func refuseShard(kv KeyValue) error {
	m, err := ParseShardMark(kv)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: it is shard %d of the set of shards %s: open the whole set, with --store shard:URL,URL,… in the order of the shards", ErrStoreClosed, m.Number, m.Set)
}

// Sharded reports whether the store is made of shards, each of which may be restored without the
// others.
func (l *Log) Sharded() bool {
	_, is := As[Sharded](l.store)
	return is
}

// Shards returns how many shards the store is made of; 1: it is not.
func (l *Log) Shards() int {
	if sharded, is := As[Sharded](l.store); is {
		return sharded.Shards()
	}
	return 1
}

// CheckTogether refuses, with ErrSpansShards, a topic whose partitions are not all on the shard of
// a key. The parameter what names the use that needs this, for the message. ErrUnavailable: a
// partition is about to be on another shard. A topic that is not refused stays together until the
// next leader epoch begins.
func (l *Log) CheckTogether(t Topic, key, what string) error {
	sharded, is := As[Sharded](l.store)
	if !is {
		return nil
	}
	home, err := sharded.ShardOf(key)
	if err != nil {
		return err
	}
	for i, p := range t.Partitions {
		if at := sharded.ShardWith(p); at != home {
			return fmt.Errorf("%w: %s needs all partitions of topic %q on shard %d, and partition %d is on shard %d: use another topic. Nothing happened", ErrSpansShards, what, t.Name, home, i, at)
		}
		if err := sharded.Refusal(p); err != nil {
			return fmt.Errorf("%s needs all partitions of topic %q on shard %d: %w", what, t.Name, home, err)
		}
	}
	return nil
}

// deleteOnShards deletes a topic whose partitions may be on several shards.
//
//  1. every shard of the topic answers; else nothing happens
//  2. the catalog says that the topic is being deleted
//  3. its partitions on other shards than that of the catalog are deleted: they refuse records from
//     now on
//  4. the name is deleted, with the other partitions
//
// So once the name is free, no process can append to the old partitions, even if it has not heard
// of the deletion. If the process ends after the second step, or a shard is lost then, some process
// completes the deletion (completeDeletions).
func (l *Log) deleteOnShards(ctx context.Context, sharded Sharded, name string, id TopicID) error {
	t, err := l.changeTopic(ctx, name, id, nil, func(t Topic, _ owners) (Topic, []Check, error) {
		if t.Version == 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		if err := t.checkDeleted(); err != nil {
			return Topic{}, nil, err
		}
		t.deleting = true
		return t, nil, l.shardsAnswer(ctx, sharded, t)
	})
	if err != nil {
		return err
	}
	if err := l.endTopic(ctx, name, t.ID); err != nil && !errors.Is(err, ErrUnknownTopic) { // ErrUnknownTopic: another process completed the deletion
		return fmt.Errorf("%w: the deletion of topic %q has begun, and is completed when all its shards answer: %v", ErrUnsure, name, err)
	}
	return nil
}

// shardsAnswer returns ErrUnavailable unless every shard with a partition of the topic answers, and
// none of the partitions moves just now.
func (l *Log) shardsAnswer(ctx context.Context, sharded Sharded, t Topic) error {
	refused := func(err error) error {
		return fmt.Errorf("delete topic %q: a topic is deleted while every shard with one of its partitions answers. Nothing happened: %w", t.Name, err)
	}
	for _, p := range t.Partitions {
		if err := sharded.Refusal(p); err != nil {
			return refused(err)
		}
	}
	slices, err := l.EachBounds(ctx, t.Partitions...)
	if err != nil {
		return refused(err)
	}
	for _, s := range slices {
		if s.Err != nil && !errors.Is(s.Err, ErrNoPartition) {
			return refused(s.Err)
		}
	}
	return nil
}

// completeDeletions completes deletions of topics that have begun. What fails is tried again with
// the next call.
func (l *Log) completeDeletions(ctx context.Context) {
	for _, t := range l.Topics() {
		if t.deleting {
			_ = l.endTopic(ctx, t.Name, t.ID) // a lost shard was logged
		}
	}
}

// A topic whose creation was never completed may leave partitions on shards, and so may one that an
// older weir deleted: the process ended between two steps, or a shard did not answer.
//
// Partitions of a deleted topic are deleted if a key under leftPrefix lists them; older versions
// put it. Others are deleted only while they are empty: if shard 0 was restored from a backup, it
// lacks the topics that were created since, and their records on other shards must stay.
const leftPrefix = "left/"

// noteLeftovers notes the empty partitions whose numbers were assigned and that no topic has. Once
// something is noted, even that there is none, forgetLeftovers also reads the lists under
// leftPrefix.
func (l *Log) noteLeftovers(bounds []Bounds, catalog *catalog) {
	if _, is := As[Sharded](l.store); !is {
		return
	}
	var left []Partition
	for _, b := range bounds {
		if b.Next == 0 && catalog.deleted(b.Partition) {
			left = append(left, b.Partition)
		}
	}
	l.leftovers.Store(&left)
}

// forgetLeftovers deletes what was noted. What fails is tried again with the next call.
func (l *Log) forgetLeftovers(ctx context.Context) {
	left := l.leftovers.Swap(nil)
	if left == nil {
		return
	}
	again := l.forgetEach(ctx, *left)
	err := l.ListAll(ctx, leftPrefix, func(kv KeyValue) error {
		var ps []Partition
		if err := json.Unmarshal(kv.Value, &ps); err != nil {
			return fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
		}
		if failed := l.forgetEach(ctx, ps); len(failed) > 0 {
			return fmt.Errorf("%d partitions of a deleted topic are left", len(failed))
		}
		_, err := l.Append(ctx, Entry{Checks: []Check{{Key: kv.Key, Version: kv.Version}}, Puts: []Put{{Key: kv.Key}}, UsesReserve: true})
		return err
	})
	if err != nil || len(again) > 0 {
		l.leftovers.CompareAndSwap(nil, &again)
	}
}

// forgetEach deletes partitions, with one entry for each shard, and returns those that it could not
// delete.
func (l *Log) forgetEach(ctx context.Context, all []Partition) (failed []Partition) {
	of := make(map[int][]Partition)
	for _, p := range all {
		at := l.shardWith(p)
		of[at] = append(of[at], p)
	}
	for _, ps := range of {
		if _, err := l.Append(ctx, Entry{Forgets: ps, UsesReserve: true}); err != nil {
			failed = append(failed, ps...)
		}
	}
	return failed
}
