package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/claims"
)

const (
	defPrefix   = "queue/def/"
	statePrefix = "queue/state/"
	deadPrefix  = "queue/dead/"
	// sharedShard is the last part of the key of the one state that a queue with limits has.
	sharedShard = "all"

	// nameMax bounds a queue's name plus the longest suffix of its topics, in bytes: it is Kafka's
	// limit for a topic's name.
	nameMax = 249
)

// Spec describes a queue to create.
type Spec struct {
	Name string
	// Topic holds its messages. It may exist already, and may have other readers. Default: Name.
	Topic string
	// Partitions is the number of partitions if the topic is created. Default 4.
	Partitions int
	Settings   Settings
}

// Settings say how a queue treats its messages. The zero value of every field means its default.
type Settings struct {
	// Lease is how long a claim lasts unless the worker asks for another time. Default 30 s.
	Lease time.Duration
	// Attempts is how often a message is delivered before it becomes a dead letter. Default 10;
	// negative: no limit.
	Attempts int
	// Backoff is the longest pause after the first failed attempt; it doubles with each attempt, up
	// to BackoffMax. The actual pause is random, between 0 and the longest. Defaults: 1 s; 5 min,
	// or Backoff if that is longer.
	Backoff, BackoffMax time.Duration
	// Delays, if set, replace Backoff: the exact pauses after each failed attempt. The last one
	// also applies to all later attempts.
	Delays []time.Duration
	// TTL is how old a message may be when it is delivered. Its age counts from when it was
	// enqueued or, if it had a delay, from the delay's end; retries do not change that. An older
	// message becomes a dead letter, or is dropped if DropExpired is set. Default: no limit.
	TTL         time.Duration
	DropExpired bool
	// KeyOrder delivers messages of one key one at a time, in the order of their partition.
	// Messages without a key have no order, and there is none between priorities. The topics of the
	// queue's messages get no more partitions meanwhile.
	KeyOrder bool
	// KeepDone appends each handled message to the topic `<queue>.done`.
	KeepDone bool
	// Window is how many messages of a partition may be claimed or waiting for another attempt at a
	// time. Default 2000, as in KIP-932.
	Window int
	// Paused: no message can be claimed. Acks and enqueuing still work.
	Paused bool
	// Unique lets messages have a unique key: while a message is unfinished, no other message with
	// its key is enqueued.
	Unique bool
	// Concurrency bounds the messages claimed at the same time, and Rate the claims per second,
	// over all processes. With either limit all partitions share one state, so claims are
	// serialised. 0: no limit.
	Concurrency int
	Rate        float64
	// Priorities is the number of levels. Higher levels are delivered first; one claim in eight
	// starts with a lower level, each in turn, so that no level starves. Each level above 0 is a
	// topic, `<queue>.p1` and so on. Default 1; at most 8. It can grow, but not shrink.
	Priorities int
}

// A lease lasts at least LeaseMin and at most LeaseMax.
const (
	LeaseMin = 100 * time.Millisecond
	LeaseMax = 12 * time.Hour
)

// limited reports whether all partitions share one state.
func (s Settings) limited() bool { return s.Concurrency > 0 || s.Rate > 0 }

const (
	leaseMin, leaseMax = LeaseMin, LeaseMax
	attemptsMax        = 1_000_000
	windowMax          = 10_000
	delaysMax          = 100
	concurrencyMax     = 100_000
	rateMax            = 1e6
	prioritiesMax      = 8
	delayMax           = 100 * 365 * 24 * time.Hour
)

func (s Settings) withDefaults() Settings {
	s.Lease = cmp.Or(s.Lease, 30*time.Second)
	s.Attempts = cmp.Or(s.Attempts, 10)
	s.Backoff = cmp.Or(s.Backoff, time.Second)
	s.BackoffMax = cmp.Or(s.BackoffMax, max(5*time.Minute, s.Backoff))
	s.Window = cmp.Or(s.Window, 2000)
	s.Priorities = cmp.Or(s.Priorities, 1)
	return s
}

// check returns an error if the settings, with their defaults filled in, are not allowed.
func (s Settings) check() error {
	bad := func(what string, value any, why string, a ...any) error {
		return &eventlog.InvalidError{What: what, Value: fmt.Sprint(value), Why: fmt.Sprintf(why, a...)}
	}
	switch {
	case s.Lease < leaseMin || s.Lease > leaseMax:
		return bad("lease", s.Lease, "%v to %v are allowed", leaseMin, leaseMax)
	case s.Attempts > attemptsMax:
		return bad("attempts", s.Attempts, "at most %d, or a negative number for no limit", attemptsMax)
	case s.Backoff < 0 || s.Backoff > delayMax:
		return bad("backoff", s.Backoff, "0 to %v are allowed", delayMax)
	case s.BackoffMax < s.Backoff || s.BackoffMax > delayMax:
		return bad("backoff_max", s.BackoffMax, "it must be at least the backoff, %v, and at most %v", s.Backoff, delayMax)
	case len(s.Delays) > delaysMax:
		return bad("delays", len(s.Delays), "at most %d are allowed", delaysMax)
	case s.TTL < 0 || s.TTL > delayMax:
		return bad("ttl", s.TTL, "0 to %v are allowed", delayMax)
	case s.Window < 1 || s.Window > windowMax:
		return bad("window", s.Window, "1 to %d are allowed", windowMax)
	}
	switch {
	case s.Concurrency < 0 || s.Concurrency > concurrencyMax:
		return bad("concurrency", s.Concurrency, "0 to %d are allowed", concurrencyMax)
	case !(s.Rate >= 0 && s.Rate <= rateMax):
		return bad("rate", s.Rate, "0 to %v messages a second are allowed", rateMax)
	case s.Priorities < 1 || s.Priorities > prioritiesMax:
		return bad("priorities", s.Priorities, "1 to %d levels are allowed", prioritiesMax)
	}
	for _, d := range s.Delays {
		if d < 0 || d > delayMax {
			return bad("delay", d, "0 to %v are allowed", delayMax)
		}
	}
	return nil
}

// pause returns how long a message waits after a number of failed attempts.
func (s Settings) pause(failed int32) time.Duration {
	if n := int32(len(s.Delays)); n > 0 {
		return s.Delays[min(max(failed, 1), n)-1]
	}
	longest := s.BackoffMax
	if doublings := max(failed, 1) - 1; doublings < 32 && s.Backoff < s.BackoffMax>>doublings {
		longest = s.Backoff << doublings
	}
	return chance.N(max(longest, 1))
}

// definition is a queue's definition in the store.
type definition struct {
	name      string
	id        string // a purge changes it; a queue that is deleted and created again gets a new one, too
	topic     string // the topic's name when the queue was created, for people
	topicID   eventlog.TopicID
	levels    []eventlog.TopicID // the topics of the priorities from 1 on
	made      bool               // the queue created its topic: handled messages are removed there (retention.go)
	purged    []string           // the queue's ids before its last purges, at most purgedMax
	schedules string             // the id of its schedules, which a purge does not change; "": the queue never had a schedule
	settings  Settings
	version   eventlog.Version
}

// purgedMax is how many of the ids from before purges are remembered: wasPurged recognises only
// messages for these.
const purgedMax = 16

// earlier returns the id before the last purge; "": the queue was not purged. Messages that came
// while that purge was on its way are still in the queue: claims and unique keys of that time have
// this id.
func (d *definition) earlier() string {
	if len(d.purged) == 0 {
		return ""
	}
	return d.purged[len(d.purged)-1]
}

// reads reports whether a topic is one of the queue's.
func (d definition) reads(topic eventlog.TopicID) bool {
	return d.topicID == topic || slices.Contains(d.levels, topic)
}

// The value of a definition's key. Durations are text, as in "1m30s".
type storedDefinition struct {
	ID        string         `json:"id"`
	Topic     string         `json:"topic"`
	TopicID   string         `json:"topic_id"`
	Levels    []string       `json:"levels,omitempty"` // ids of the topics of the priorities from 1 on
	Made      bool           `json:"made_topic,omitempty"`
	Purged    []string       `json:"purged,omitempty"`
	Schedules string         `json:"schedules,omitempty"`
	Settings  storedSettings `json:"settings"`
}

type storedSettings struct {
	Lease       string   `json:"lease"`
	Attempts    int      `json:"attempts"`
	Backoff     string   `json:"backoff"`
	BackoffMax  string   `json:"backoff_max"`
	Delays      []string `json:"delays,omitempty"`
	TTL         string   `json:"ttl,omitempty"`
	DropExpired bool     `json:"drop_expired,omitempty"`
	KeyOrder    bool     `json:"key_order,omitempty"`
	KeepDone    bool     `json:"keep_done,omitempty"`
	Window      int      `json:"window"`
	Paused      bool     `json:"paused,omitempty"`
	Unique      bool     `json:"unique,omitempty"`
	Concurrency int      `json:"concurrency,omitempty"`
	Rate        float64  `json:"rate,omitempty"`
	Priorities  int      `json:"priorities,omitempty"`
}

func defKey(name string) string { return defPrefix + url.PathEscape(name) }

func statesOf(id string) string { return statePrefix + id + "/" }

func stateKey(id string, p eventlog.Partition) string {
	return statesOf(id) + strconv.FormatInt(int64(p), 10)
}

// deadKey returns the key of the state of one partition of the queue's dead-letter topic.
func deadKey(id string, p eventlog.Partition) string {
	return deadPrefix + id + "/" + strconv.FormatInt(int64(p), 10)
}

func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func (d definition) value() []byte {
	s := d.settings
	stored := storedSettings{
		Lease: s.Lease.String(), Attempts: s.Attempts, Backoff: s.Backoff.String(), BackoffMax: s.BackoffMax.String(),
		DropExpired: s.DropExpired, KeyOrder: s.KeyOrder, KeepDone: s.KeepDone, Window: s.Window, Paused: s.Paused,
		Unique: s.Unique, Concurrency: s.Concurrency, Rate: s.Rate, Priorities: s.Priorities,
	}
	if s.TTL > 0 {
		stored.TTL = s.TTL.String()
	}
	for _, delay := range s.Delays {
		stored.Delays = append(stored.Delays, delay.String())
	}
	var levels []string
	for _, id := range d.levels {
		levels = append(levels, id.String())
	}
	value, err := json.Marshal(storedDefinition{ID: d.id, Topic: d.topic, TopicID: d.topicID.String(), Levels: levels, Made: d.made, Purged: d.purged, Schedules: d.schedules, Settings: stored})
	if err != nil {
		panic(fmt.Sprintf("queue %q: encode its definition: %v", d.name, err)) // JSON can encode all its fields
	}
	return value
}

// Using returns the name of a queue whose messages, dead letters or handled messages are in a
// topic; "": there is none.
func Using(ctx context.Context, log *eventlog.Log, topic eventlog.Topic) (name string, err error) {
	err = log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		if err == nil && (d.reads(topic.ID) || topic.Name == d.name+deadSuffix || topic.Name == d.name+doneSuffix) {
			name = d.name
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("look for queues that use topic %q: %w", topic.Name, err)
	}
	return name, nil
}

func parseDefinition(kv eventlog.KeyValue) (d definition, err error) {
	fail := func(err error) (definition, error) {
		return definition{}, fmt.Errorf("key %s does not hold a queue: %w", kv.Key, err)
	}
	var stored storedDefinition
	if err := json.Unmarshal(kv.Value, &stored); err != nil {
		return fail(err)
	}
	if d.name, err = url.PathUnescape(strings.TrimPrefix(kv.Key, defPrefix)); err != nil {
		return fail(err)
	}
	if d.topicID, err = eventlog.ParseTopicID(stored.TopicID); err != nil {
		return fail(err)
	}
	for _, text := range stored.Levels {
		id, err := eventlog.ParseTopicID(text)
		if err != nil {
			return fail(err)
		}
		d.levels = append(d.levels, id)
	}
	d.id, d.topic, d.made, d.purged, d.schedules, d.version = stored.ID, stored.Topic, stored.Made, stored.Purged, stored.Schedules, kv.Version
	s := stored.Settings
	d.settings = Settings{Attempts: s.Attempts, DropExpired: s.DropExpired, KeyOrder: s.KeyOrder, KeepDone: s.KeepDone, Window: s.Window, Paused: s.Paused,
		Unique: s.Unique, Concurrency: s.Concurrency, Rate: s.Rate, Priorities: s.Priorities}
	var errs [4]error
	d.settings.Lease, errs[0] = time.ParseDuration(s.Lease)
	d.settings.Backoff, errs[1] = time.ParseDuration(s.Backoff)
	d.settings.BackoffMax, errs[2] = time.ParseDuration(s.BackoffMax)
	if s.TTL != "" {
		d.settings.TTL, errs[3] = time.ParseDuration(s.TTL)
	}
	for _, text := range s.Delays {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return fail(err)
		}
		d.settings.Delays = append(d.settings.Delays, delay)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return fail(err)
	}
	d.settings = d.settings.withDefaults() // for settings that did not exist when the queue was created
	return d, nil
}

// Info describes a queue.
type Info struct {
	Name, Topic string
	ID          string
	Settings    Settings
}

func (d definition) info() Info {
	return Info{Name: d.name, Topic: d.topic, ID: d.id, Settings: d.settings}
}

// read reads a definition: one store call.
func (qs *Queues) read(ctx context.Context, name string) (definition, error) {
	if err := checkName(name); err != nil {
		return definition{}, err
	}
	kv, err := qs.log.Get(ctx, defKey(name))
	if err != nil {
		return definition{}, fmt.Errorf("look for queue %q: %w", name, err)
	}
	if kv.Version == 0 {
		return definition{}, fmt.Errorf("%w: %q", ErrUnknownQueue, name)
	}
	return parseDefinition(kv)
}

// Create creates a queue, durably, and its topics if they do not exist: those of its messages, also
// for higher priorities, of its dead letters and, with KeepDone, of its handled messages.
// ErrQueueExists if the name is taken; *eventlog.InvalidError if something is not allowed. After
// eventlog.ErrUnsure try again: topics were created, and perhaps the queue. A queue starts with the
// oldest message in its topic.
func (qs *Queues) Create(ctx context.Context, spec Spec) (Info, error) {
	if err := checkName(spec.Name); err != nil {
		return Info{}, err
	}
	for _, name := range []string{spec.Name, spec.Topic} {
		if eventlog.InternalTopic(name) {
			return Info{}, &eventlog.InvalidError{What: "queue or topic", Value: shorten(name, 64), Why: "the name belongs to one of weir's own topics"}
		}
	}
	settings := spec.Settings.withDefaults()
	if err := settings.check(); err != nil {
		return Info{}, fmt.Errorf("create queue %q: %w", spec.Name, err)
	}
	d, f := definition{name: spec.Name, settings: settings}, finder{qs: qs}
	fail := func(err error) (Info, error) {
		// If the queue exists, it was another call that created it, with these topics.
		if !errors.Is(err, ErrQueueExists) {
			err = f.outcome(err, "it may not be a queue yet")
		}
		return Info{}, fmt.Errorf("create queue %q: %w", spec.Name, err)
	}
	for range changesMax {
		err := qs.create(ctx, spec, &d, &f)
		if isStale(err) { // another process changed something first, or the store was rewound
			if err = qs.log.RefreshTopics(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return fail(err)
		}
		return d.info(), nil
	}
	return fail(fmt.Errorf("%w: other changes of it came first, %d times", eventlog.ErrUnavailable, changesMax))
}

// create is one try to create a queue; ErrStale: try again.
func (qs *Queues) create(ctx context.Context, spec Spec, d *definition, f *finder) error {
	if _, err := qs.read(ctx, spec.Name); !errors.Is(err, ErrUnknownQueue) {
		if err == nil {
			err = ErrQueueExists
		}
		return err
	}
	messages := cmp.Or(spec.Topic, spec.Name)
	there, err := f.check(ctx, append(TopicsOfSettings(d.name, d.settings), messages, d.name+deadSuffix)...)
	if err != nil {
		return err
	}
	if _, is := there[messages]; !is {
		if err := checkNew(messages); err != nil {
			return err
		}
	}
	same := qs.sameEpoch()
	topic, made, err := f.topic(ctx, topicSpec(d.owner(), messages, cmp.Or(spec.Partitions, 4), 0))
	var letters, handled eventlog.Topic
	if err == nil {
		letters, _, err = f.topic(ctx, topicSpec(d.ownerOfLetters(), d.name+deadSuffix, 1, topic.MaxMessageBytes()+headersMax))
	}
	if err == nil && d.settings.KeepDone {
		handled, _, err = f.topic(ctx, topicSpec(d.ownerOfLetters(), d.name+doneSuffix, 1, topic.MaxMessageBytes()+headersMax))
	}
	if err != nil {
		return err
	}
	made = made || d.made && d.topicID == topic.ID // an earlier try created the topic
	d.id, d.topic, d.topicID, d.made, d.levels = newID(), topic.Name, topic.ID, made, nil
	levels, err := f.makeLevels(ctx, d)
	if err != nil {
		return err
	}
	d.version = eventlog.Version(0).Next()
	e := eventlog.Entry{
		Checks: []eventlog.Check{{Key: defKey(d.name)}, same},
		Puts:   []eventlog.Put{{Key: defKey(d.name), Version: d.version, Value: d.value()}},
	}
	addChecks(&e, unchanged(append(levels, topic, letters, handled)...)...)
	if err := qs.passLetters(ctx, *d, letters, &e); err != nil {
		return err
	}
	if err := qs.tell(ctx, &e, audit.QueueCreate, d.name, nil, d.shown()); err != nil {
		return err
	}
	return qs.define(ctx, d.name, e)
}

// sameEpoch returns a check that refuses an entry if a leader epoch begins after this call. Two
// kinds of entries need it: those that have offsets which were read after the call, because in a
// store that was rewound these may be past the partitions' ends; and those that name topics for
// which CheckTogether was called, because in another epoch their partitions may be on other shards.
func (qs *Queues) sameEpoch() eventlog.Check {
	return eventlog.InEpoch(qs.log.LeaderEpoch())
}

// passLetters makes a new queue skip the dead letters that an earlier queue of its name left: some
// may have been redriven or discarded.
func (qs *Queues) passLetters(ctx context.Context, d definition, letters eventlog.Topic, e *eventlog.Entry) error {
	ends, err := qs.log.Bounds(ctx, letters.Partitions...)
	if err != nil {
		return err
	}
	for _, end := range ends {
		if end.Err != nil {
			return end.Err
		}
		if p, at := end.Bounds.Partition, end.Bounds.Next; at > 0 {
			passed := claims.State{Writer: qs.newWriterID(), Parts: []claims.Part{{Partition: p, Floor: at, Next: at}}}
			e.Puts = append(e.Puts, eventlog.Put{Key: deadKey(d.id, p), Version: 1, Value: passed.Encode()})
		}
	}
	return nil
}

// Alter edits a queue's settings with change, durably, and creates topics that they need. change
// may be called more than once. After eventlog.ErrUnsure try again: topics were created, and
// perhaps the settings changed. In each process the settings take effect with its next claim or
// ack, or earlier if the process hears of the change first, which takes as long as to hear of a new
// event.
func (qs *Queues) Alter(ctx context.Context, name string, change func(*Settings) error) (Info, error) {
	f := finder{qs: qs}
	fail := func(err error) (Info, error) {
		return Info{}, fmt.Errorf("alter queue %q: %w", name, f.outcome(err, "its settings may be as before"))
	}
	for range changesMax {
		d, err := qs.read(ctx, name)
		if err != nil && f.made {
			return fail(err)
		}
		if err != nil {
			return Info{}, err
		}
		was, before, same := d, d.settings, qs.sameEpoch()
		if err := change(&d.settings); err != nil && f.made { // the caller may look for its own error, too
			return Info{}, fmt.Errorf("alter queue %q: %w: its topics exist, but its settings may be as before (%w)", name, eventlog.ErrUnsure, err)
		} else if err != nil {
			return Info{}, err
		}
		d.settings = d.settings.withDefaults()
		if err := d.settings.check(); err != nil {
			return fail(err)
		}
		has := TopicsOfSettings(name, Settings{KeepDone: before.KeepDone, Priorities: len(d.levels) + 1})
		needs := slices.DeleteFunc(TopicsOfSettings(name, d.settings), func(topic string) bool { return slices.Contains(has, topic) })
		if len(needs) > 0 {
			if _, err := f.check(ctx, needs...); err != nil {
				return fail(err)
			}
		}
		levels, err := f.makeLevels(ctx, &d) // first, because it checks the number of priorities
		var handled eventlog.Topic
		if err == nil && d.settings.KeepDone {
			handled, _, err = f.topic(ctx, topicSpec(d.ownerOfLetters(), name+doneSuffix, 1, 1<<20+headersMax))
		}
		if err != nil {
			return fail(err)
		}
		// The check same refuses the entry if the topics may have moved to another shard.
		e := eventlog.Entry{
			Checks: []eventlog.Check{{Key: defKey(name), Version: d.version}, same},
			Puts:   []eventlog.Put{{Key: defKey(name), Version: d.version.Next(), Value: d.value()}},
		}
		if d.settings.KeyOrder && !before.KeyOrder {
			if levels, err = qs.own(ctx, d); err != nil && !isStale(err) {
				return fail(err)
			}
		}
		addChecks(&e, unchanged(append(levels, handled)...)...)
		if err == nil && before.limited() != d.settings.limited() {
			err = qs.reshard(ctx, d, &e)
		}
		if err == nil {
			err = qs.tellAltered(ctx, &e, was, d)
		}
		if err == nil {
			err = qs.define(ctx, name, e)
		}
		if isStale(err) { // the definition or a topic was changed
			if err = qs.log.RefreshTopics(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return fail(err)
		}
		if before.KeyOrder && !d.settings.KeyOrder {
			d.version = e.Puts[0].Version
			qs.start(func(ctx context.Context) {
				if _, err := qs.own(ctx, d); err != nil && ctx.Err() == nil {
					qs.logger.Info("topics cannot be told now that their queue keeps no order; trying again later", "queue", name, "err", err)
				}
			})
		}
		return d.info(), nil
	}
	return fail(fmt.Errorf("%w: other changes of it came first, %d times", eventlog.ErrUnavailable, changesMax))
}

// partitionsOf lists all partitions that a queue has in the store now, and returns checks that no
// partition is added.
func (qs *Queues) partitionsOf(ctx context.Context, d definition) (all []eventlog.Partition, same []eventlog.Check, err error) {
	if err := qs.log.RefreshTopics(ctx); err != nil {
		return nil, nil, err
	}
	for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
		topic, err := qs.log.TopicByID(id)
		if errors.Is(err, eventlog.ErrUnknownTopic) {
			continue // the topic was deleted
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, topic.Partitions...)
		same = append(same, topic.Unchanged())
	}
	return all, same, nil
}

// reshard adds to an entry the change from one state per partition to a shared one, or back. It
// checks every state, also missing ones, and that no partition was added: if a message is claimed
// or answered meanwhile, the entry is refused.
func (qs *Queues) reshard(ctx context.Context, d definition, e *eventlog.Entry) error {
	partitions, same, err := qs.partitionsOf(ctx, d)
	if err != nil {
		return err
	}
	addChecks(e, same...)
	none := map[string]bool{statesOf(d.id) + sharedShard: true}
	for _, p := range partitions {
		none[stateKey(d.id, p)] = true
	}
	var all claims.State
	err = qs.log.ListAll(ctx, statesOf(d.id), func(kv eventlog.KeyValue) error {
		s, err := claims.Decode(kv.Value)
		if err == nil {
			err = qs.addEarlier(ctx, []string{kv.Key}, []*claims.State{s})
		}
		if err != nil {
			return fmt.Errorf("key %s: %w", kv.Key, err)
		}
		delete(none, kv.Key)
		all.Parts = append(all.Parts, s.Parts...)
		e.Checks = append(e.Checks, eventlog.Check{Key: kv.Key, Version: kv.Version})
		e.Puts = append(e.Puts, eventlog.Put{Key: kv.Key})
		return nil
	})
	if err != nil {
		return err
	}
	for key := range none {
		e.Checks = append(e.Checks, eventlog.Check{Key: key})
	}
	slices.SortFunc(all.Parts, func(a, b claims.Part) int { return cmp.Compare(a.Partition, b.Partition) })
	all.Writer = qs.newWriterID()
	version := eventlog.Version(0).Next()
	if d.settings.limited() {
		e.Puts = append(e.Puts, eventlog.Put{Key: statesOf(d.id) + sharedShard, Version: version, Value: all.Encode()})
		return nil
	}
	for _, p := range all.Parts {
		own := claims.State{Writer: all.Writer, Parts: []claims.Part{p}}
		e.Puts = append(e.Puts, eventlog.Put{Key: stateKey(d.id, p.Partition), Version: version, Value: own.Encode()})
	}
	return nil
}

// Pause stops the delivery of a queue's messages; Resume continues it.
func (qs *Queues) Pause(ctx context.Context, name string) error { return qs.setPaused(ctx, name, true) }

// Resume ends a Pause.
func (qs *Queues) Resume(ctx context.Context, name string) error {
	return qs.setPaused(ctx, name, false)
}

func (qs *Queues) setPaused(ctx context.Context, name string, paused bool) error {
	_, err := qs.Alter(ctx, name, func(s *Settings) error { s.Paused = paused; return nil })
	return err
}

// Delete deletes a queue, its schedules and the state of its messages. The topics stay: they may
// have other readers.
func (qs *Queues) Delete(ctx context.Context, name string) error {
	for range changesMax {
		d, err := qs.read(ctx, name)
		if err != nil {
			return err
		}
		puts := append(d.goesBefore(), eventlog.Put{Key: defKey(name)}, goes(d.id, note{}))
		if d.schedules != "" {
			puts = append(puts, goes(d.schedules, note{}))
		}
		e := eventlog.Entry{Checks: []eventlog.Check{{Key: defKey(name), Version: d.version}}, Puts: puts}
		if err = qs.tell(ctx, &e, audit.QueueDelete, name, d.shown(), nil); err == nil {
			err = qs.define(ctx, name, e)
		}
		if isStale(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete queue %q: %w", name, err)
		}
		qs.forgetGone(d.id)
		if d.earlier() != "" {
			qs.forgetGone(d.earlier())
		}
		qs.start(func(ctx context.Context) { qs.disown(ctx, name) })
		if d.schedules != "" {
			qs.forgetGone(d.schedules)
		}
		return nil
	}
	return fmt.Errorf("delete queue %q: %w: other changes of it came first, %d times", name, eventlog.ErrUnavailable, changesMax)
}

// Purge discards all messages of the queue: waiting, claimed and delayed ones. Its dead letters
// stay, and so do the records of its topic. Older receipts are stale. If the topic of the dead
// letters was deleted, Purge creates it. After eventlog.ErrUnsure try again: that topic was
// created, or perhaps the messages are discarded.
func (qs *Queues) Purge(ctx context.Context, name string) error {
	f := finder{qs: qs}
	fail := func(err error) error {
		return fmt.Errorf("purge queue %q: %w", name, f.outcome(err, "its messages may still be there"))
	}
	for range changesMax {
		old, e, err := qs.purge(ctx, name, &f)
		if err == nil {
			err = qs.define(ctx, name, e)
		}
		if isStale(err) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		qs.forgetGone(old)
		return nil
	}
	return fail(fmt.Errorf("%w: other changes of it came first, %d times", eventlog.ErrUnavailable, changesMax))
}

// purge makes the entry that gives the queue a new id, and with it states that start at the end of
// each partition. Delayed messages in the wheel name the old id, so the wheel drops them.
//
// Messages may come after the ends are read, and be claimed and acknowledged before the entry is
// committed. So the new states name the old id: see addEarlier.
func (qs *Queues) purge(ctx context.Context, name string, f *finder) (old string, e eventlog.Entry, err error) {
	same := qs.sameEpoch()
	d, err := qs.read(ctx, name)
	if err != nil {
		return old, e, err
	}
	partitions, topics, err := qs.partitionsOf(ctx, d)
	if err != nil {
		return old, e, err
	}
	ends, err := qs.log.Bounds(ctx, partitions...)
	if err != nil {
		return old, e, err
	}
	old = d.id
	before := d.goesBefore()
	d.purged = append(d.purged, old)
	d.purged = d.purged[max(0, len(d.purged)-purgedMax):]
	d.id = newID()
	e.Checks = []eventlog.Check{{Key: defKey(name), Version: d.version}, same}
	addChecks(&e, topics...)
	e.Puts = []eventlog.Put{{Key: defKey(name), Version: d.version.Next(), Value: d.value()}, goes(old, note{Purged: name})}
	e.Puts = append(e.Puts, before...)
	if err := qs.tell(ctx, &e, audit.QueuePurge, name, d.shown(), d.shown()); err != nil {
		return old, e, err
	}
	all := claims.State{Writer: qs.newWriterID(), After: old}
	for _, end := range ends {
		if end.Err != nil {
			return old, e, end.Err
		}
		*all.Part(end.Bounds.Partition) = claims.Part{Partition: end.Bounds.Partition, Floor: end.Bounds.Next, Next: end.Bounds.Next}
	}
	if d.settings.limited() {
		e.Puts = append(e.Puts, eventlog.Put{Key: statesOf(d.id) + sharedShard, Version: 1, Value: all.Encode()})
	} else {
		for _, p := range all.Parts {
			own := claims.State{Writer: all.Writer, After: old, Parts: []claims.Part{p}}
			e.Puts = append(e.Puts, eventlog.Put{Key: stateKey(d.id, p.Partition), Version: 1, Value: own.Encode()})
		}
	}
	// Dead letters that are redriven meanwhile must not appear again: so each state of dead letters
	// is checked, also missing ones.
	letters, _, err := f.topic(ctx, topicSpec(d.ownerOfLetters(), name+deadSuffix, 1, 1<<20+headersMax))
	if err != nil {
		return old, e, err
	}
	none := make(map[string]bool)
	for _, p := range letters.Partitions {
		none[deadKey(old, p)] = true
	}
	err = qs.log.ListAll(ctx, deadPrefix+old+"/", func(kv eventlog.KeyValue) error {
		delete(none, kv.Key)
		key := deadPrefix + d.id + strings.TrimPrefix(kv.Key, deadPrefix+old)
		e.Checks = append(e.Checks, eventlog.Check{Key: kv.Key, Version: kv.Version})
		e.Puts = append(e.Puts, eventlog.Put{Key: kv.Key}, eventlog.Put{Key: key, Version: 1, Value: kv.Value})
		return nil
	})
	for key := range none {
		e.Checks = append(e.Checks, eventlog.Check{Key: key})
	}
	return old, e, err
}

// List returns all queues, by name.
func (qs *Queues) List(ctx context.Context) ([]Info, error) { return qs.Select(ctx, []string{""}) }

// Select returns the queues whose names begin with one of the prefixes. No prefix may begin with
// another prefix.
func (qs *Queues) Select(ctx context.Context, prefixes []string) ([]Info, error) {
	var infos []Info
	for _, prefix := range prefixes {
		err := qs.log.ListAll(ctx, defKey(prefix), func(kv eventlog.KeyValue) error {
			d, err := parseDefinition(kv)
			infos = append(infos, d.info())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
	}
	return infos, nil
}

// changesMax bounds how often a change is tried while other processes change the same queue.
const changesMax = 32

func isStale(err error) bool { return errors.Is(err, eventlog.ErrStale) }
