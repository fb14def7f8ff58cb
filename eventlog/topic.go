package eventlog

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/chance"
)

// Topic is a name for some partitions, with settings. A Topic is a snapshot: a change replaces the
// whole catalog.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions []Partition       // by number, from 0
	Config     map[string]string // only what was set; Setting knows the defaults
	Writer     string            // the only use that appends to it, shown to people; "": any publisher
	Owners     []Owner           // who needs all its records; some may have ended, see CheckDeletes
	Together   bool              // on a store made of shards: all its partitions are on one
	Version    Version           // the catalog's version when the topic was created or last changed: two topics never have the same
	deleting   bool              // its deletion has begun (deleteOnShards)
}

// TopicID is a topic's identity. A topic that is deleted and created again is another topic
// (KIP-516).
type TopicID [16]byte

func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// ParseTopicID reads what String returns.
func ParseTopicID(text string) (id TopicID, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, &InvalidError{What: "topic id", Value: fmt.Sprintf("%.64q", text), Why: fmt.Sprintf("it must have %d hexadecimal digits", 2*len(id))}
	}
	return TopicID(raw), nil
}

// Unchanged returns the check that the topic is still as described here: it was neither altered nor
// deleted, and got no partitions.
func (t Topic) Unchanged() Check { return Check{Key: topicPrefix + t.Name, Version: t.Version} }

// TopicSpec describes a topic to be created.
type TopicSpec struct {
	Name       string
	Partitions int
	Config     map[string]string
	Writer     string // see Topic.Writer
	Owner      Owner  // who needs all its records; the zero value: nobody
	// Beside, on a store made of shards, returns a key for the topic's id: all partitions, also
	// those added later, are on the shard of that key, so that entries may hold both. nil: the
	// partitions are spread over the shards.
	Beside   func(TopicID) string
	Internal bool // allows a Name that is reserved for weir's own topics; never set it for a topic that a client asks for
}

// The catalog in keyed state:
//
//	catalog        the next free partition number; its version counts changes of topics, and every change checks it
//	topic/<name>   the topic, as JSON
//
// Every change is also a record in partition 0. The follower of every other process sees partition
// 0 change and reads the catalog again; and partition 0 is the history of the topics.
const (
	catalogKey       = "catalog"
	catalogPartition = Partition(0)
	topicPrefix      = "topic/"
)

// PartitionsMax bounds the partitions of one topic.
const PartitionsMax = 10_000

// totalPartitions is the default of Config.TotalPartitions.
const totalPartitions = 200_000

// catalog is a snapshot of all topics. It is never changed, only replaced.
type catalog struct {
	incarnation int64 // incarnationNumber of the tail when it was read
	version     Version
	byName      map[string]Topic
	byID        map[TopicID]Topic
	sorted      []Topic               // by name
	sealing     map[Partition]sealing // of topics whose sealing is not defaultSealing
	lingering   map[Partition]lingering
	free        Partition           // the next free number
	owner       map[Partition]int32 // of each partition its topic, an index of sorted
	changed     chan struct{}       // closed when a snapshot with other topics takes its place
}

func newCatalog(incarnation int64, version Version, free Partition, topics []Topic) *catalog {
	c := &catalog{
		incarnation: incarnation, version: version, free: free, sorted: topics,
		byName: make(map[string]Topic, len(topics)), byID: make(map[TopicID]Topic, len(topics)),
		sealing: make(map[Partition]sealing), lingering: make(map[Partition]lingering), owner: make(map[Partition]int32), changed: make(chan struct{}),
	}
	slices.SortFunc(c.sorted, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	for i, t := range c.sorted {
		c.byName[t.Name], c.byID[t.ID] = t, t
		for _, p := range t.Partitions {
			c.owner[p] = int32(i)
		}
		if how := t.sealing(); how != defaultSealing {
			for _, p := range t.Partitions {
				c.sealing[p] = how
			}
		}
		if how, lingers := t.lingering(); lingers {
			for _, p := range t.Partitions {
				c.lingering[p] = how
			}
		}
	}
	return c
}

// deleted reports whether a partition's topic was deleted: its number was assigned, and no topic
// has it.
func (c *catalog) deleted(p Partition) bool {
	_, owned := c.owner[p]
	return p != catalogPartition && p.assigned() < c.free && !owned
}

// topicOf returns the topic of a partition, among those that this process knows.
func (l *Log) topicOf(p Partition) (id TopicID, known bool) {
	c := l.catalog.Load()
	if c == nil {
		return id, false
	}
	at, known := c.owner[p]
	if known {
		id = c.sorted[at].ID
	}
	return id, known
}

// sealing returns how records of a partition are sealed, by the settings that this process knows.
func (l *Log) sealing(p Partition) sealing {
	if how, ok := l.catalog.Load().sealing[p]; ok {
		return how
	}
	return defaultSealing
}

func (l *Log) lingering(p Partition) (lingering, bool) {
	how, lingers := l.catalog.Load().lingering[p]
	return how, lingers
}

// loadCatalog reads all topics. A change during the read changes partition 0 once more, so the
// catalog is read again.
//
// After ErrRewound this process keeps the topics that it knew, although the rewound store may lack
// some of them. The caller must not conclude that a topic was deleted.
func (l *Log) loadCatalog(ctx context.Context) error {
	incarnation := l.tail.incarnationNumber()
	next, err := readCatalog(ctx, l.listNow, incarnation)
	if err == nil && l.tail.incarnationNumber() != incarnation {
		err = fmt.Errorf("read the catalog: %w", ErrRewound)
	}
	if err == nil {
		l.swapCatalog(next)
	}
	return err
}

// catalogReads is how often readCatalog reads the topics while others change them.
const catalogReads = 8

// readCatalog reads the catalog. incarnation is the tail's number for the store's incarnation.
//
// It reads the version before and after the topics, and all again if that changed: otherwise of two
// catalogs of one version one could be older, and take the place of the other (swapCatalog). After
// catalogReads it returns what it has, under the version before: a poll is due then, which reads
// again.
func readCatalog(ctx context.Context, list lister, incarnation int64) (*catalog, error) {
	head, err := list.get(ctx, catalogKey)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	for reads := 1; ; reads++ {
		free, err := freePartition(head)
		if err != nil {
			return nil, fmt.Errorf("read the catalog: %w", err)
		}
		var topics []Topic
		err = list.pages(ctx, topicPrefix, listPage, nil, func(kv KeyValue) error {
			t, err := parseTopic(kv)
			topics = append(topics, t)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the catalog: %w", err)
		}
		after, err := list.get(ctx, catalogKey)
		if err != nil {
			return nil, fmt.Errorf("read the catalog: %w", err)
		}
		if after.Version == head.Version || reads == catalogReads {
			return newCatalog(incarnation, head.Version, free, topics), nil
		}
		head = after
	}
}

// swapCatalog replaces the catalog by a newer snapshot, and drops the partitions that it no longer
// has.
func (l *Log) swapCatalog(next *catalog) {
	changed := next.changed
	for {
		old := l.catalog.Load()
		if old != nil && (old.incarnation > next.incarnation || old.incarnation == next.incarnation && old.version > next.version) {
			return
		}
		if next.changed = changed; old != nil && old.incarnation == next.incarnation && old.version == next.version {
			next.changed = old.changed
		}
		if !l.catalog.CompareAndSwap(old, next) {
			continue
		}
		if old != nil && old.changed != next.changed {
			defer close(old.changed)
		}
		l.tail.forget(next.deleted) // after the swap: the readers it wakes see that the topic was deleted
		return
	}
}

// Topics returns all topics that this process knows, by name: a change by another process is known
// within Config.Poll. Callers must not change the slice: it is shared.
func (l *Log) Topics() []Topic { return l.catalog.Load().sorted }

// TopicsChanged is closed when this process learns of a change of topics after the call. Call it
// before reading the topics.
func (l *Log) TopicsChanged() <-chan struct{} { return l.catalog.Load().changed }

// TopicByID returns the topic with an id, among those that this process knows.
func (l *Log) TopicByID(id TopicID) (Topic, error) {
	if t, ok := l.catalog.Load().byID[id]; ok {
		return t, nil
	}
	return Topic{}, fmt.Errorf("%w: id %v", ErrUnknownTopic, id)
}

// KnowsTopic reports whether this process knows a topic by that name, so that Topic costs no store
// call.
func (l *Log) KnowsTopic(name string) bool {
	_, ok := l.catalog.Load().byName[name]
	return ok
}

// Topic returns a topic by name. A topic that this process does not know costs a store call and, if
// it exists, a read of the whole catalog.
func (l *Log) Topic(ctx context.Context, name string) (Topic, error) {
	if t, ok := l.catalog.Load().byName[name]; ok {
		return t, nil
	}
	t, err := l.TopicNow(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	if err := l.loadCatalog(ctx); err != nil { // the next calls find it in memory
		return Topic{}, err
	}
	return t, nil
}

// TopicNow reads a topic from the store, in one call, whatever this process knows of it.
func (l *Log) TopicNow(ctx context.Context, name string) (Topic, error) {
	if err := CheckTopicName(name); err != nil {
		return Topic{}, err
	}
	kv, err := l.Get(ctx, topicPrefix+name)
	if err != nil {
		return Topic{}, fmt.Errorf("look for topic %q: %w", name, err)
	}
	if kv.Version == 0 {
		return Topic{}, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
	}
	return parseTopic(kv)
}

// TopicsNow is TopicNow for any number of topics: a store call for each thousand. Those that do not
// exist, or have no valid name, are not in the answer.
func (l *Log) TopicsNow(ctx context.Context, names []string) (map[string]Topic, error) {
	var keys []string
	for _, name := range names {
		if CheckTopicName(name) == nil {
			keys = append(keys, topicPrefix+name)
		}
	}
	found := make(map[string]Topic)
	err := l.GetAll(ctx, keys, func(kv KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		t, err := parseTopic(kv)
		found[t.Name] = t
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for %d topics: %w", len(keys), err)
	}
	return found, nil
}

// RefreshTopics reads all topics from the store again: afterwards this process knows every change
// made before the call.
func (l *Log) RefreshTopics(ctx context.Context) error { return l.loadCatalog(ctx) }

// CreateTopic creates a topic, durably. ErrTopicExists when the name is taken; *InvalidError when
// the name, the number of partitions or a setting is not allowed.
func (l *Log) CreateTopic(ctx context.Context, spec TopicSpec) (Topic, error) {
	if err := spec.Check(); err != nil {
		return Topic{}, err
	}
	return l.changeTopic(ctx, spec.Name, TopicID{}, spec.Beside, func(old Topic) (Topic, []Check, error) {
		if old.Version != 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrTopicExists, spec.Name)
		}
		t := Topic{Name: spec.Name, Config: maps.Clone(spec.Config), Writer: spec.Writer, Together: spec.Beside != nil, Partitions: make([]Partition, spec.Partitions)}
		if spec.Owner.Key != "" {
			t.Owners = []Owner{spec.Owner}
		}
		_, _ = cryptorand.Read(t.ID[:])                         // never fails
		t.ID[6], t.ID[8] = t.ID[6]&0x0f|0x40, t.ID[8]&0x3f|0x80 // a version 4 UUID
		return t, nil, nil
	})
}

// Check returns why a topic like this is not allowed.
func (s TopicSpec) Check() error {
	if err := CheckTopicName(s.Name); err != nil {
		return err
	}
	if !s.Internal {
		if err := checkReserved(s.Name); err != nil {
			return err
		}
	}
	if err := checkPartitions(s.Partitions); err != nil {
		return err
	}
	if err := CheckConfig(s.Config); err != nil {
		return err
	}
	return Topic{Name: s.Name, Config: s.Config, Writer: s.Writer}.checkWriter()
}

func checkPartitions(n int) error {
	if n < 1 || n > PartitionsMax {
		return &InvalidError{What: "number of partitions", Value: strconv.Itoa(n), Why: fmt.Sprintf("a topic has 1 to %d partitions", PartitionsMax)}
	}
	return nil
}

// TopicChange is a change of a topic, made as a whole or not at all. The zero value changes
// nothing.
type TopicChange struct {
	Name string // ChangeTopic sets it
	// ID is the topic to change: another topic with the same name is not changed (ErrUnknownTopic).
	// Zero: the topic that has the name.
	ID TopicID
	// Partitions is the new number of partitions, which cannot be lower than the present one. 0: as
	// it is.
	Partitions int
	// Config edits the settings that were set for the topic. It may be called more than once. nil:
	// no edit.
	Config func(config map[string]string) error
}

// ChangeTopic changes a topic, durably.
func (l *Log) ChangeTopic(ctx context.Context, name string, change TopicChange) (Topic, error) {
	change.Name = name
	topics, errs := l.ChangeTopics(ctx, change)
	return topics[0], errs[0]
}

// ChangeTopics changes topics, each of another name, durably; each may be refused by itself. It
// costs a few store calls for hundreds of them, and one for each that has owners whom the change
// concerns.
func (l *Log) ChangeTopics(ctx context.Context, changes ...TopicChange) ([]Topic, []error) {
	edits := make([]*topicEdit, len(changes))
	for i, c := range changes {
		edits[i] = l.alteration(ctx, c.Name, c.ID, func(t *Topic) error {
			if err := t.grow(c.Partitions); err != nil || c.Config == nil {
				return err
			}
			return t.configure(c.Config)
		})
	}
	l.changeTopics(ctx, slices.DeleteFunc(slices.Clone(edits), func(e *topicEdit) bool { return e.err != nil })...)
	topics, errs := make([]Topic, len(edits)), make([]error, len(edits))
	for i, e := range edits {
		topics[i], errs[i] = e.next, e.err
	}
	return topics, errs
}

// AlterTopic calls change to edit the settings that were set for the topic. It may call it more
// than once.
func (l *Log) AlterTopic(ctx context.Context, name string, change func(config map[string]string) error) (Topic, error) {
	return l.alterTopic(ctx, name, TopicID{}, func(t *Topic) error { return t.configure(change) })
}

// alterTopic calls alter to edit an existing topic. It may call it more than once.
func (l *Log) alterTopic(ctx context.Context, name string, id TopicID, alter func(*Topic) error) (Topic, error) {
	edit := l.alteration(ctx, name, id, alter)
	if edit.err == nil {
		l.changeTopics(ctx, edit)
	}
	return edit.next, edit.err
}

// alteration is an edit of an existing topic by alter.
func (l *Log) alteration(ctx context.Context, name string, id TopicID, alter func(*Topic) error) *topicEdit {
	return &topicEdit{name: name, id: id, err: checkReserved(name), decide: func(t Topic) (Topic, []Check, error) {
		if t.Version == 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		if t.deleting {
			return Topic{}, nil, fmt.Errorf("%w: %q is being deleted", ErrUnknownTopic, name)
		}
		if err := alter(&t); err != nil {
			return Topic{}, nil, err
		}
		return l.checkOwners(ctx, t)
	}}
}

// grow adds partitions up to total; 0: none.
func (t *Topic) grow(total int) error {
	if total == 0 || total == len(t.Partitions) {
		return nil
	}
	if err := checkPartitions(total); err != nil {
		return err
	}
	if total < len(t.Partitions) {
		return &InvalidError{What: "number of partitions", Value: strconv.Itoa(total),
			Why: fmt.Sprintf("topic %q has %d partitions, and that number can only be raised", t.Name, len(t.Partitions))}
	}
	t.Partitions = append(slices.Clone(t.Partitions), make([]Partition, total-len(t.Partitions))...)
	return nil
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
	if err := CheckConfig(config); err != nil {
		return err
	}
	return t.checkWriter()
}

// checkWriter refuses compaction of a topic whose only writer needs all records: those of streams,
// for example.
func (t Topic) checkWriter() error {
	if t.Writer != "" && t.Compacted() {
		return &InvalidError{What: "cleanup.policy", Value: t.Setting("cleanup.policy"), Why: fmt.Sprintf("only %s append to topic %q, and they need all its records; allowed: delete", t.Writer, t.Name)}
	}
	return nil
}

// DeleteTopic deletes the topic that has the name now, as DeleteThisTopic does.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	return l.deleteTopic(ctx, name, TopicID{})
}

// DeleteThisTopic deletes a topic, and never another topic that has taken its name
// (ErrUnknownTopic). One entry deletes the name and the partitions: while the topic has the name it
// keeps its records, and once the name is free no process can append to the old partitions. After
// ErrUnsure the topic is unchanged, or deleted; on a store made of shards it may also be deleted
// later, when a shard answers again, and lack some of its records until then.
func (l *Log) DeleteThisTopic(ctx context.Context, t Topic) error {
	return l.deleteTopic(ctx, t.Name, t.ID)
}

func (l *Log) deleteTopic(ctx context.Context, name string, id TopicID) error {
	if err := checkReserved(name); err != nil {
		return err
	}
	if sharded, is := As[Sharded](l.store); is {
		return l.deleteOnShards(ctx, sharded, name, id)
	}
	return l.endTopic(ctx, name, id)
}

// endTopic deletes a topic with all its partitions.
func (l *Log) endTopic(ctx context.Context, name string, id TopicID) error {
	_, err := l.changeTopic(ctx, name, id, nil, func(t Topic) (Topic, []Check, error) {
		if t.Version == 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		return Topic{}, nil, nil
	})
	return err
}

const (
	// changePatience bounds how long a change of a topic is tried again while other processes
	// change topics, too.
	changePatience = 10 * time.Second
	// changePause is the longest first pause between two tries. It doubles up to changePauseMax.
	changePause, changePauseMax = 2 * time.Millisecond, 200 * time.Millisecond
)

// topicEdit is a change of one topic, and its outcome.
type topicEdit struct {
	name string
	// id is the topic's: another topic is not touched (ErrUnknownTopic). Zero: the topic that is
	// read first. Another process may delete that one meanwhile and create another with the same
	// name, which a later try must not change.
	id     TopicID
	beside func(TopicID) string // the partitions of a new topic are on the shard of its key; nil: on any
	// decide returns the topic's new state (no name: delete it; partitions numbered 0 are new and
	// get a number), and what must still hold. old.Version 0: there is none.
	decide func(old Topic) (Topic, []Check, error)

	next Topic
	err  error
}

const (
	// editsMax, editBytes and editPartitions bound the changes that are one entry, beside the
	// first.
	editsMax       = 256
	editBytes      = 1 << 20
	editPartitions = 10_000
)

// changeTopic makes one change.
func (l *Log) changeTopic(ctx context.Context, name string, id TopicID, beside func(TopicID) string, decide func(old Topic) (Topic, []Check, error)) (Topic, error) {
	edit := &topicEdit{name: name, id: id, beside: beside, decide: decide}
	l.changeTopics(ctx, edit)
	return edit.next, edit.err
}

// changeTopics makes changes of different topics, each of which may be refused by itself: four
// store calls for hundreds of them. On a store made of shards each is an entry of its own, because
// their parts may be on different shards.
//
// All changes of topics check one key. Those of this process wait for each other, so that none is
// in vain; those of other processes are the reason to try again.
func (l *Log) changeTopics(ctx context.Context, edits ...*topicEdit) {
	select {
	case l.changing <- struct{}{}:
		defer func() { <-l.changing }()
	case <-ctx.Done():
		for _, e := range edits {
			e.err = fmt.Errorf("change topic %q: %w: this process makes other changes first. Nothing happened", e.name, ErrBusy)
		}
		return
	}
	changed, until := false, time.Now().Add(changePatience)
	for most, group := changePause, editsMax; len(edits) > 0; {
		if l.Sharded() {
			group = 1
		}
		now := edits[:min(len(edits), group)]
		taken, err := l.changeOnce(ctx, now)
		switch {
		case errors.Is(err, ErrStale):
			timer := time.NewTimer(chance.N(most))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			if timer.Stop(); ctx.Err() != nil || time.Now().After(until) {
				for _, e := range edits {
					e.err = fmt.Errorf("change topic %q: %w: those of other processes came first. Nothing happened", e.name, ErrBusy)
				}
				edits = nil
			}
			most = min(2*most, changePauseMax)
			continue
		case errors.Is(err, ErrTooLarge) && taken > 1:
			group = 1
			continue
		}
		for _, e := range now[:taken] {
			if e.err == nil && err != nil {
				e.next, e.err = Topic{}, fmt.Errorf("change topic %q: %w", e.name, err)
			}
			changed = changed || e.err == nil
		}
		edits = edits[taken:]
		most, until = changePause, time.Now().Add(changePatience)
	}
	if !changed {
		return
	}
	if err := l.loadCatalog(ctx); err != nil {
		l.cfg.Logger.Warn("topics changed, but the catalog could not be read again", "err", err)
	}
}

// checkAll returns why there cannot be so many partitions more, by the topics that this process
// knows: every partition takes memory in every process, as long as its topic exists.
func (l *Log) checkAll(more int) error {
	if is := len(l.catalog.Load().owner); more > 0 && is+more > l.cfg.TotalPartitions {
		return &InvalidError{What: "number of partitions", Value: strconv.Itoa(more),
			Why: fmt.Sprintf("all topics together have %d partitions already, and may have %d; delete topics, use fewer partitions, or raise that limit (weir serve --partitions-max; in Go Options.PartitionsMax)", is, l.cfg.TotalPartitions)}
	}
	return nil
}

// changeOnce tries to make the first of these changes, as many as fit into an entry. It returns how
// many it has decided; those that were refused have their error. err is that of the entry.
func (l *Log) changeOnce(ctx context.Context, edits []*topicEdit) (taken int, err error) {
	head, err := l.Get(ctx, catalogKey)
	if err != nil {
		return len(edits), err
	}
	keys := make([]string, len(edits))
	for i, e := range edits {
		keys[i] = topicPrefix + e.name
	}
	var found []KeyValue
	if err := l.GetAll(ctx, keys, func(kv KeyValue) error { found = append(found, kv); return nil }); err != nil {
		return len(edits), err
	}
	c, err := l.newCatalogChange(head)
	if err != nil {
		return len(edits), err
	}
	for i, e := range edits {
		if c.full() {
			break
		}
		taken++
		e.next, e.err = Topic{}, nil
		old, err := parseTopic(found[i])
		if err == nil && e.id == (TopicID{}) {
			e.id = old.ID
		}
		if err == nil && old.ID != e.id {
			err = fmt.Errorf("%w: %q with id %v: it was deleted", ErrUnknownTopic, e.name, e.id)
		}
		var checks []Check
		if err == nil {
			e.next, checks, err = e.decide(old)
		}
		if err == nil {
			if err = l.checkAll(c.more + len(e.next.Partitions) - len(old.Partitions)); err != nil {
				err = fmt.Errorf("change topic %q: %w", e.name, err)
			}
		}
		if err == nil {
			e.next, err = c.add(old, e.next, e.beside)
		}
		if err == nil {
			c.more += max(0, len(e.next.Partitions)-len(old.Partitions))
		}
		if err != nil {
			e.next, e.err = Topic{}, err
			continue
		}
		c.check(checks)
	}
	if len(c.records) == 0 {
		return taken, nil // all were refused
	}
	_, err = l.Append(ctx, c.entry())
	return taken, err
}

// catalogChange is an entry that changes topics.
type catalogChange struct {
	l       *Log
	version Version
	free    Partition // the next free number
	e       Entry
	records []batch.Record // of the catalog's partition
	bytes   int
	more    int // how many partitions topics get
	checked map[string]bool
}

func (l *Log) newCatalogChange(head KeyValue) (*catalogChange, error) {
	free, err := freePartition(head)
	if err != nil {
		return nil, err
	}
	return &catalogChange{
		l: l, version: head.Version + 1, free: max(free, Partition(epochNumbers(l.LeaderEpoch()))), checked: make(map[string]bool),
		e: Entry{
			Checks:  []Check{{Key: catalogKey, Version: head.Version}},
			Batches: []Batch{{Partition: catalogPartition}},
		},
	}, nil
}

// full reports whether the entry should have no more changes.
func (c *catalogChange) full() bool {
	return c.bytes >= editBytes || len(c.e.Batches)+len(c.e.Forgets) >= editPartitions
}

// add replaces old by next. The partitions of a new topic are on the shard of beside's key; nil: on
// any.
func (c *catalogChange) add(old, next Topic, beside func(TopicID) string) (Topic, error) {
	change := batch.Record{Key: []byte(old.Name)}
	if next.Name == "" {
		c.e.Puts, c.e.Forgets = append(c.e.Puts, Put{Key: topicPrefix + old.Name}), append(c.e.Forgets, old.Partitions...)
	} else {
		next.Version = c.version
		var key string
		if beside != nil {
			key = beside(next.ID)
		}
		numbered := slices.Clone(next.Partitions)
		next.Partitions = slices.Clone(next.Partitions)
		free, err := c.l.numberOn(&next, key, c.free)
		if err != nil {
			return Topic{}, err
		}
		c.free = free
		for i, p := range next.Partitions {
			if numbered[i] == catalogPartition {
				c.e.Batches = append(c.e.Batches, Batch{Partition: p})
			}
		}
		change = batch.Record{Key: []byte(next.Name), Value: next.json()}
		c.e.Puts = append(c.e.Puts, Put{Key: topicPrefix + next.Name, Version: c.version, Value: change.Value})
	}
	// A change of a topic is small, and deleting or shortening the retention frees space.
	c.e.UsesReserve = old.Version != 0 && (c.e.UsesReserve || len(c.records) == 0)
	c.records = append(c.records, change)
	c.bytes += 2*len(change.Value) + len(change.Key)
	return next, nil
}

// check adds checks, each once.
func (c *catalogChange) check(checks []Check) {
	for _, k := range checks {
		if !c.checked[k.Key] {
			c.checked[k.Key] = true
			c.e.Checks = append(c.e.Checks, k)
		}
	}
}

// entry returns the entry of the changes that were added.
func (c *catalogChange) entry() Entry {
	e := c.e
	e.Puts = append(e.Puts, Put{Key: catalogKey, Version: c.version, Value: strconv.AppendInt(nil, int64(c.free), 10)})
	e.Batches = append(e.Batches, defaultSealing.sealLoose(catalogPartition, c.records))
	return e
}

// freePartition returns the next free partition number, from the value of catalogKey.
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
	Writer     string            `json:"writer,omitempty"`
	Owners     []Owner           `json:"owners,omitempty"`
	Together   bool              `json:"together,omitempty"`
	Deleting   bool              `json:"deleting,omitempty"`
}

func (t Topic) json() []byte {
	value, err := json.Marshal(topicJSON{ID: t.ID.String(), Partitions: t.Partitions, Config: t.Config, Writer: t.Writer, Owners: t.Owners, Together: t.Together, Deleting: t.deleting})
	if err != nil {
		panic(fmt.Sprintf("cannot encode topic %q as JSON: %v", t.Name, err))
	}
	return value
}

// parseTopic decodes a topic's key and value; Version 0: there is none.
func parseTopic(kv KeyValue) (Topic, error) {
	t := Topic{Name: strings.TrimPrefix(kv.Key, topicPrefix), Version: kv.Version}
	if kv.Version == 0 {
		return t, nil
	}
	var j topicJSON
	if err := json.Unmarshal(kv.Value, &j); err != nil {
		return Topic{}, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	t.Partitions, t.Config, t.Writer, t.Owners, t.Together, t.deleting = j.Partitions, j.Config, j.Writer, j.Owners, j.Together, j.Deleting
	if n, err := hex.Decode(t.ID[:], []byte(j.ID)); err != nil || n != len(t.ID) {
		return Topic{}, fmt.Errorf("key %s holds the id %q: expected %d hexadecimal digits", kv.Key, j.ID, 2*len(t.ID))
	}
	return t, nil
}
