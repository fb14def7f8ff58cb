package eventlog

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Topic is a name for some partitions, with settings. A Topic is a snapshot: a change replaces the
// whole catalog.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions []Partition       // by number, from 0
	Config     map[string]string // only what was set; Setting knows the defaults
	Writer     string            // the only use that appends to it, shown to people; "": any publisher
	Owners     []Owner           // who needs all its records; some may not exist any more (checkOwners)
	Together   bool              // on a store made of shards: all its partitions are on one
	Version    Version           // the catalog's version when the topic was created or last changed; topics that one entry changes have the same
	deleting   bool              // its deletion has begun (deleteOnShards)
}

// Deleting reports whether the topic is being deleted, on a store made of shards: some of its
// partitions may be gone.
func (t Topic) Deleting() bool { return t.deleting }

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
	// those added later, are on the shard of that key, so that one entry may change the key and
	// append to the partitions. nil: the partitions are spread over the shards.
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
	sealing     map[Partition]sealing // the sealing of partitions whose topics do not have defaultSealing
	lingering   map[Partition]lingering
	free        Partition           // the next free number
	owner       map[Partition]int32 // the topic of each partition, as an index into sorted
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

// loadCatalog reads all topics. A change during the read also appends to partition 0, so the
// follower reads the catalog again.
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
// It reads the version before and after the topics, and reads all again if the version changed.
// Otherwise there could be two catalogs of one version, and the older one could take the place of
// the newer one (swapCatalog). After catalogReads tries it returns what it has, under the version
// from before: a poll is due then, which reads again.
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

// TopicsIn reads all topics of a store without a log, by name, and the version of their catalog: it
// changes with every change of a topic.
func TopicsIn(ctx context.Context, store Store) ([]Topic, Version, error) {
	c, err := readCatalog(ctx, store.List, 0)
	if err != nil {
		return nil, 0, err
	}
	return c.sorted, c.version, nil
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

// TopicsChanged returns a channel that is closed when this process learns of a change of topics
// after the call. Call it before reading the topics.
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
	topics, errs := l.CreateTopics(ctx, spec)
	return topics[0], errs[0]
}

// CreateTopics is CreateTopic for any number of topics; each may be refused by itself. It costs a
// few store calls for hundreds of them.
func (l *Log) CreateTopics(ctx context.Context, specs ...TopicSpec) ([]Topic, []error) {
	edits := make([]*topicEdit, len(specs))
	for i, spec := range specs {
		edits[i] = creation(spec)
	}
	return l.changeEach(ctx, edits)
}

func creation(spec TopicSpec) *topicEdit {
	return &topicEdit{name: spec.Name, beside: spec.Beside, err: spec.Check(), decide: func(old Topic, _ owners) (Topic, []Check, error) {
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
	}}
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
		if s.Name == AuditTopic {
			return &InvalidError{What: "topic name", Value: s.Name, Why: "the topic says who changed what, and is created with the first change"}
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

// ChangeTopics changes topics, durably; each may be refused by itself. It costs a few store calls
// for hundreds of them.
func (l *Log) ChangeTopics(ctx context.Context, changes ...TopicChange) ([]Topic, []error) {
	edits := make([]*topicEdit, len(changes))
	for i, c := range changes {
		edits[i] = alteration(c.Name, c.ID, func(t *Topic) error {
			if err := t.grow(c.Partitions); err != nil || c.Config == nil {
				return err
			}
			return t.configure(c.Config)
		})
	}
	return l.changeEach(ctx, edits)
}

// AlterTopic calls change to edit the settings that were set for the topic. It may call it more
// than once.
func (l *Log) AlterTopic(ctx context.Context, name string, change func(config map[string]string) error) (Topic, error) {
	return l.ChangeTopic(ctx, name, TopicChange{Config: change})
}

// alteration is an edit of an existing topic by alter.
func alteration(name string, id TopicID, alter func(*Topic) error) *topicEdit {
	return &topicEdit{name: name, id: id, err: checkReserved(name), decide: func(t Topic, known owners) (Topic, []Check, error) {
		if t.Version == 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		if t.deleting {
			return Topic{}, nil, fmt.Errorf("%w: %q is being deleted", ErrUnknownTopic, name)
		}
		if err := alter(&t); err != nil {
			return Topic{}, nil, err
		}
		return t.checkOwners(known)
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
	if err := t.checkAudit(); err != nil {
		return err
	}
	return t.checkWriter()
}

// auditKept is how long events of the audit stay at least.
const auditKept = 24 * time.Hour

// checkAudit refuses settings with which events of the audit would be deleted early, or changes of
// topics would have to wait.
func (t Topic) checkAudit() error {
	if t.Name != AuditTopic || t.Writer == "" {
		return nil
	}
	for name, value := range t.Config {
		if name != "retention.ms" {
			return &InvalidError{What: name, Value: value, Why: "of topic " + AuditTopic + ", which says who changed what, only retention.ms can be changed"}
		}
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms >= 0 && ms < auditKept.Milliseconds() {
			return &InvalidError{What: name, Value: value, Why: fmt.Sprintf("topic %s keeps its events for at least %d, which are a day", AuditTopic, auditKept.Milliseconds())}
		}
	}
	return nil
}

// checkWriter refuses compaction of a topic that has a Writer. Such a use needs all records, as
// streams do.
func (t Topic) checkWriter() error {
	if t.Writer != "" && t.Compacted() {
		return &InvalidError{What: "cleanup.policy", Value: t.Setting("cleanup.policy"), Why: fmt.Sprintf("only %s append to topic %q, and they need all its records; allowed: delete", t.Writer, t.Name)}
	}
	return nil
}

// DeleteTopic deletes the topic that has the name now, as DeleteTopics does.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	return l.DeleteTopics(ctx, Topic{Name: name})[0]
}

// DeleteTopics deletes topics. If another topic has taken a name, that topic stays
// (ErrUnknownTopic), unless the Topic given has no ID. Each may fail by itself. One entry deletes
// the name and the partitions: while the topic has the name it keeps its records, and once the name
// is free no process can append to the old partitions. After ErrUnsure the topic is unchanged, or
// deleted; on a store made of shards it may also be deleted later, when a shard answers again, and
// lack some of its records until then.
//
// It costs a few store calls for hundreds of topics; on a store made of shards some for each.
func (l *Log) DeleteTopics(ctx context.Context, topics ...Topic) []error {
	edits := make([]*topicEdit, len(topics))
	for i, t := range topics {
		edits[i] = deletion(t.Name, t.ID)
		edits[i].err = checkReserved(t.Name)
	}
	sharded, is := As[Sharded](l.store)
	if !is {
		_, errs := l.changeEach(ctx, edits)
		return errs
	}
	errs := make([]error, len(topics))
	for i, e := range edits {
		if errs[i] = e.err; e.err == nil {
			errs[i] = l.deleteOnShards(ctx, sharded, e.name, e.id)
		}
	}
	return errs
}

// endTopic deletes a topic with all its partitions.
func (l *Log) endTopic(ctx context.Context, name string, id TopicID) error {
	edit := deletion(name, id)
	l.changeTopics(ctx, edit)
	return edit.err
}

func deletion(name string, id TopicID) *topicEdit {
	return &topicEdit{name: name, id: id, decide: func(t Topic, _ owners) (Topic, []Check, error) {
		if t.Version == 0 {
			return Topic{}, nil, fmt.Errorf("%w: %q", ErrUnknownTopic, name)
		}
		return Topic{}, nil, t.checkDeleted()
	}}
}

// checkDeleted refuses to delete the topic that says who deleted what.
func (t Topic) checkDeleted() error {
	if t.Name == AuditTopic && t.Writer != "" {
		return &InvalidError{What: "topic", Value: t.Name, Why: "it says who changed what, and cannot be deleted; its retention.ms says how long events are kept"}
	}
	return nil
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
