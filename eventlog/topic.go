package eventlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog/batch"
)

// Topic is a name for some partitions, and settings. Topics are values; what the log knows of them changes as a
// whole (catalog).
type Topic struct {
	Name       string
	ID         TopicID
	Partitions []Partition       // by number, from 0
	Config     map[string]string // only what was set; Setting knows the defaults
	Version    Version           // of the catalog, when the topic was last changed: no two topics ever share one
}

// TopicID is a topic's identity. A topic that is deleted and created again is another topic (KIP-516).
type TopicID [16]byte

func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// Unchanged is the check that the topic is as it is here: it was neither altered nor deleted, and got no partitions.
func (t Topic) Unchanged() Check { return Check{Key: topicPrefix + t.Name, Version: t.Version} }

// TopicSpec describes a topic to be created.
type TopicSpec struct {
	Name       string
	Partitions int
	Config     map[string]string
}

// The catalog in keyed state:
//
//	catalog        the next free partition number; its version counts changes of topics, and every change checks it
//	topic/<name>   the topic, as JSON
//	trash/<number> a partition whose topic is gone, until its records are gone too
//
// Every change is also a record in partition 0. That is how other processes learn of it: the follower sees
// partition 0 move. And it is the history of the topics, for who asks.
const (
	catalogKey       = "catalog"
	catalogPartition = Partition(0)
	topicPrefix      = "topic/"
	trashPrefix      = "trash/"
)

// PartitionsMax bounds the partitions of one topic.
const PartitionsMax = 10_000

// catalog is a snapshot of all topics. It is never changed, only replaced.
type catalog struct {
	life    int64 // the age of the tail when it was read
	version Version
	byName  map[string]Topic
	byID    map[TopicID]Topic
	sorted  []Topic               // by name
	sealing map[Partition]sealing // of topics that do not want it plain
	free    Partition             // the next free number
	owned   map[Partition]bool    // partitions of topics
	changed chan struct{}         // closed when a snapshot with other topics takes its place
}

func newCatalog(life int64, version Version, free Partition, topics []Topic) *catalog {
	c := &catalog{
		life: life, version: version, free: free, sorted: topics,
		byName: make(map[string]Topic, len(topics)), byID: make(map[TopicID]Topic, len(topics)),
		sealing: make(map[Partition]sealing), owned: make(map[Partition]bool), changed: make(chan struct{}),
	}
	slices.SortFunc(c.sorted, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range topics {
		c.byName[t.Name], c.byID[t.ID] = t, t
		for _, p := range t.Partitions {
			c.owned[p] = true
		}
		if how := t.sealing(); how != plain {
			for _, p := range t.Partitions {
				c.sealing[p] = how
			}
		}
	}
	return c
}

// deleted reports whether a partition's topic is gone: its number was given out, and no topic has it. The store may hold its records for a
// moment longer.
func (c *catalog) deleted(p Partition) bool {
	return p != catalogPartition && p < c.free && !c.owned[p]
}

// sealing is how records of a partition are sealed, by the settings that this process has heard of.
func (l *Log) sealing(p Partition) sealing {
	if how, ok := l.catalog.Load().sealing[p]; ok {
		return how
	}
	return plain
}

// loadCatalog reads all topics. A change that comes while it reads moves partition 0 once more, so it is read again.
func (l *Log) loadCatalog(ctx context.Context) error {
	life := l.tail.age()
	head, err := l.Get(ctx, catalogKey)
	if err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	free, err := freePartition(head)
	if err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	var topics []Topic
	err = l.ListAll(ctx, topicPrefix, func(kv KeyValue) error {
		t, err := parseTopic(kv)
		topics = append(topics, t)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	l.swapCatalog(newCatalog(life, head.Version, free, topics))
	return nil
}

// swapCatalog puts a newer snapshot in place, and lets go of the partitions that it no longer has.
func (l *Log) swapCatalog(next *catalog) {
	changed := next.changed
	for {
		old := l.catalog.Load()
		if old != nil && (old.life > next.life || old.life == next.life && old.version > next.version) {
			return
		}
		if next.changed = changed; old != nil && old.life == next.life && old.version == next.version {
			next.changed = old.changed
		}
		if !l.catalog.CompareAndSwap(old, next) {
			continue
		}
		if old != nil && old.changed != next.changed {
			defer close(old.changed)
		}
		l.tail.forget(next.deleted) // after the swap: whoever it wakes sees that the topic is gone
		return
	}
}

// Topics returns all topics that this process has heard of, by name: another process's change arrives within
// Config.Poll. The slice is shared and must not be changed.
func (l *Log) Topics() []Topic { return l.catalog.Load().sorted }

// TopicsChanged is closed when this process hears of a change of topics after the call. Call it before looking at them.
func (l *Log) TopicsChanged() <-chan struct{} { return l.catalog.Load().changed }

// TopicByID finds a topic by its identity, among those that this process has heard of.
func (l *Log) TopicByID(id TopicID) (Topic, error) {
	if t, ok := l.catalog.Load().byID[id]; ok {
		return t, nil
	}
	return Topic{}, fmt.Errorf("%w: id %v", ErrUnknownTopic, id)
}

// Topic finds a topic by name. One that this process has not heard of costs a trip to the store.
func (l *Log) Topic(ctx context.Context, name string) (Topic, error) {
	if t, ok := l.catalog.Load().byName[name]; ok {
		return t, nil
	}
	t, err := l.TopicNow(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	if err := l.loadCatalog(ctx); err != nil { // so that all who ask next find it
		return Topic{}, err
	}
	return t, nil
}

// TopicNow asks the store, in one trip, for a topic as it is now, whatever this process has heard of it.
func (l *Log) TopicNow(ctx context.Context, name string) (Topic, error) {
	if err := CheckTopicName(name); err != nil {
		return Topic{}, err
	}
	kv, err := l.Get(ctx, topicPrefix+name)
	if err != nil {
		return Topic{}, fmt.Errorf("look for topic %q: %w", name, err)
	}
	if kv.Version == 0 {
		return Topic{}, fmt.Errorf("%w: %q: create it first: EnsureTopic, or weir topic create %s", ErrUnknownTopic, name, name)
	}
	return parseTopic(kv)
}

// RefreshTopics reads all topics from the store again: what other processes changed before the call is known after it.
func (l *Log) RefreshTopics(ctx context.Context) error { return l.loadCatalog(ctx) }

// CreateTopic creates a topic, durably. ErrTopicExists when the name is taken; *InvalidError when the name, the number of
// partitions or a setting is not allowed.
func (l *Log) CreateTopic(ctx context.Context, spec TopicSpec) (Topic, error) {
	if err := spec.Check(); err != nil {
		return Topic{}, err
	}
	return l.changeTopic(ctx, spec.Name, TopicID{}, func(old Topic) (Topic, error) {
		if old.Version != 0 {
			return Topic{}, fmt.Errorf("%w: %q", ErrTopicExists, spec.Name)
		}
		t := Topic{Name: spec.Name, Config: maps.Clone(spec.Config), Partitions: make([]Partition, spec.Partitions)}
		_, _ = rand.Read(t.ID[:])                               // never fails
		t.ID[6], t.ID[8] = t.ID[6]&0x0f|0x40, t.ID[8]&0x3f|0x80 // a version 4 UUID
		return t, nil
	})
}

// Check says whether a topic may look like this.
func (s TopicSpec) Check() error {
	if err := CheckTopicName(s.Name); err != nil {
		return err
	}
	if err := checkPartitions(s.Partitions); err != nil {
		return err
	}
	return CheckConfig(s.Config)
}

func checkPartitions(n int) error {
	if n < 1 || n > PartitionsMax {
		return &InvalidError{What: "number of partitions", Value: strconv.Itoa(n), Why: fmt.Sprintf("a topic has 1 to %d", PartitionsMax)}
	}
	return nil
}

// TopicChange says what becomes of a topic: all of it, or nothing. The zero value changes nothing.
type TopicChange struct {
	// ID is the topic that is meant; another one of its name is not changed (ErrUnknownTopic). Zero: the one that has the name.
	ID TopicID
	// Partitions is how many there are to be, no fewer than there are. 0: as many as there are.
	Partitions int
	// Config edits what was set of the topic's settings. It may be called more than once. nil: they stay.
	Config func(config map[string]string) error
}

// ChangeTopic changes a topic, durably.
func (l *Log) ChangeTopic(ctx context.Context, name string, change TopicChange) (Topic, error) {
	return l.alterTopic(ctx, name, change.ID, func(t *Topic) error {
		if err := t.grow(change.Partitions); err != nil || change.Config == nil {
			return err
		}
		return t.configure(change.Config)
	})
}

// AddPartitions gives a topic more partitions, up to total.
func (l *Log) AddPartitions(ctx context.Context, name string, total int) (Topic, error) {
	if err := checkPartitions(total); err != nil {
		return Topic{}, err
	}
	return l.alterTopic(ctx, name, TopicID{}, func(t *Topic) error {
		if total == len(t.Partitions) {
			return t.notSo(total)
		}
		return t.grow(total)
	})
}

// AlterTopic lets change edit what was set of a topic's settings. It may be called more than once.
func (l *Log) AlterTopic(ctx context.Context, name string, change func(config map[string]string) error) (Topic, error) {
	return l.alterTopic(ctx, name, TopicID{}, func(t *Topic) error { return t.configure(change) })
}

// alterTopic lets alter edit a topic that is there. It may be called more than once.
func (l *Log) alterTopic(ctx context.Context, name string, id TopicID, alter func(*Topic) error) (Topic, error) {
	return l.changeTopic(ctx, name, id, func(t Topic) (Topic, error) {
		if t.Version == 0 {
			return Topic{}, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		err := alter(&t)
		return t, err
	})
}

// grow asks for partitions up to total; 0 stands for those that there are.
func (t *Topic) grow(total int) error {
	if total == 0 || total == len(t.Partitions) {
		return nil
	}
	if err := checkPartitions(total); err != nil {
		return err
	}
	if total < len(t.Partitions) {
		return t.notSo(total)
	}
	t.Partitions = append(slices.Clone(t.Partitions), make([]Partition, total-len(t.Partitions))...)
	return nil
}

func (t *Topic) notSo(total int) error {
	return &InvalidError{What: "number of partitions", Value: strconv.Itoa(total),
		Why: fmt.Sprintf("topic %q has %d, and partitions can only be added", t.Name, len(t.Partitions))}
}

func (t *Topic) configure(change func(config map[string]string) error) error {
	config := maps.Clone(t.Config)
	if config == nil {
		config = make(map[string]string)
	}
	if err := change(config); err != nil {
		return err
	}
	t.Config = config
	return CheckConfig(config)
}

// DeleteTopic deletes the topic that has the name now: DeleteThisTopic tells what may be relied on.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	return l.deleteTopic(ctx, name, TopicID{})
}

// DeleteThisTopic deletes a topic, and never another one that has its name by now: then it is ErrUnknownTopic. When it returns the name is
// free and nothing can be appended to the old partitions. Should the process die in between, or the store be away (ErrUnsure), the next
// retention check finishes the work.
func (l *Log) DeleteThisTopic(ctx context.Context, t Topic) error {
	return l.deleteTopic(ctx, t.Name, t.ID)
}

func (l *Log) deleteTopic(ctx context.Context, name string, id TopicID) error {
	var gone []Partition
	_, err := l.changeTopic(ctx, name, id, func(t Topic) (Topic, error) {
		if t.Version == 0 {
			return Topic{}, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		gone = t.Partitions
		return Topic{}, nil
	})
	if err != nil {
		return err
	}
	for _, p := range gone {
		if err := l.emptyTrash(ctx, p); err != nil {
			// That nothing happened would not be true any more.
			return fmt.Errorf("delete topic %q: its name is gone, its records go with the next retention check: %w: %w", name, ErrUnsure, err)
		}
	}
	return nil
}

// emptyTrash forgets a partition whose topic is gone.
func (l *Log) emptyTrash(ctx context.Context, p Partition) error {
	if err := l.Trim(ctx, p, Forget); err != nil {
		return err
	}
	_, err := l.Append(ctx, Entry{Puts: []Put{{Key: trashKey(p)}}})
	return err
}

func trashKey(p Partition) string { return trashPrefix + strconv.FormatInt(int64(p), 10) }

// changesMax bounds how often a change is tried while other processes change topics as well.
const changesMax = 32

// changeTopic reads a topic (Version 0: there is none), lets decide say what becomes of it (no name: it is deleted; partitions
// numbered 0 are new and get a number), and commits that, provided that no topic changed meanwhile.
//
// A topic with another id than the one that is meant is left alone. With no id, the topic found first is meant: another process may delete it
// meanwhile and make a namesake, which the next round must not change.
func (l *Log) changeTopic(ctx context.Context, name string, id TopicID, decide func(old Topic) (Topic, error)) (Topic, error) {
	for range changesMax {
		head, err := l.Get(ctx, catalogKey)
		if err != nil {
			return Topic{}, fmt.Errorf("change topic %q: %w", name, err)
		}
		kv, err := l.Get(ctx, topicPrefix+name)
		if err != nil {
			return Topic{}, fmt.Errorf("change topic %q: %w", name, err)
		}
		old, err := parseTopic(kv)
		if err != nil {
			return Topic{}, err
		}
		if id == (TopicID{}) {
			id = old.ID
		}
		if old.ID != id {
			return Topic{}, fmt.Errorf("%w: %q with id %v: it was deleted", ErrUnknownTopic, name, id)
		}
		next, err := decide(old)
		if err != nil {
			return Topic{}, err
		}
		entry, next, err := catalogChange(head, old, next, l.LeaderEpoch())
		if err != nil {
			return Topic{}, err
		}
		_, err = l.Append(ctx, entry)
		switch {
		case errors.Is(err, ErrStale):
			continue
		case err != nil:
			return Topic{}, fmt.Errorf("change topic %q: %w", name, err)
		}
		if err := l.loadCatalog(ctx); err != nil {
			l.cfg.Logger.Warn("topic changed, but the catalog could not be read again", "topic", name, "err", err)
		}
		return next, nil
	}
	return Topic{}, fmt.Errorf("change topic %q: %w: topics changed %d times meanwhile", name, ErrUnavailable, changesMax)
}

// catalogChange is the entry that turns old into next.
func catalogChange(head KeyValue, old, next Topic, epoch int32) (Entry, Topic, error) {
	free, err := freePartition(head)
	if err != nil {
		return Entry{}, Topic{}, err
	}
	free = max(free, Partition(epochNumbers(epoch)))
	version := head.Version + 1
	e := Entry{
		Checks:  []Check{{Key: catalogKey, Version: head.Version}},
		Batches: []Batch{{Partition: catalogPartition}},
	}
	name := old.Name
	if next.Name == "" {
		e.Puts = []Put{{Key: topicPrefix + name}}
		for _, p := range old.Partitions {
			e.Puts = append(e.Puts, Put{Key: trashKey(p), Version: 1, Value: []byte(name)})
		}
	} else {
		name, next.Version = next.Name, version
		for i, p := range next.Partitions {
			if p == catalogPartition {
				next.Partitions[i] = free
				e.Batches = append(e.Batches, Batch{Partition: free})
				free++
			}
		}
		e.Puts = []Put{{Key: topicPrefix + name, Version: version, Value: next.json()}}
	}
	e.Puts = append(e.Puts, Put{Key: catalogKey, Version: version, Value: strconv.AppendInt(nil, int64(free), 10)})
	change := batch.Record{Key: []byte(name)}
	if next.Name != "" {
		change.Value = next.json()
	}
	e.UsesReserve = old.Version != 0 // deleting, or shortening the retention, frees space
	e.Batches = append(e.Batches, plain.sealLoose(catalogPartition, []batch.Record{change}))
	return e, next, nil
}

// freePartition is the next free partition number, by the catalog's key.
func freePartition(head KeyValue) (Partition, error) {
	if head.Version == 0 {
		return catalogPartition + 1, nil
	}
	n, err := strconv.ParseInt(string(head.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %s holds %q: %w", catalogKey, head.Value, err)
	}
	return Partition(n), nil
}

// topicJSON is a topic's value in keyed state.
type topicJSON struct {
	ID         string            `json:"id"`
	Partitions []Partition       `json:"partitions"`
	Config     map[string]string `json:"config,omitempty"`
}

func (t Topic) json() []byte {
	value, err := json.Marshal(topicJSON{ID: t.ID.String(), Partitions: t.Partitions, Config: t.Config})
	if err != nil {
		panic(fmt.Sprintf("topic %q does not become JSON: %v", t.Name, err))
	}
	return value
}

// parseTopic reads a topic's key and value; no key, no topic.
func parseTopic(kv KeyValue) (Topic, error) {
	t := Topic{Name: strings.TrimPrefix(kv.Key, topicPrefix), Version: kv.Version}
	if kv.Version == 0 {
		return t, nil
	}
	var j topicJSON
	if err := json.Unmarshal(kv.Value, &j); err != nil {
		return Topic{}, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	t.Partitions, t.Config = j.Partitions, j.Config
	if n, err := hex.Decode(t.ID[:], []byte(j.ID)); err != nil || n != len(t.ID) {
		return Topic{}, fmt.Errorf("key %s holds the id %q: expected %d hexadecimal digits", kv.Key, j.ID, 2*len(t.ID))
	}
	return t, nil
}
