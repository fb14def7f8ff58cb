package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
)

const (
	categoryPrefix = "stream/category/"
	headPrefix     = "stream/head/"
	eventPrefix    = "stream/event/"
	snapshotPrefix = "stream/snapshot/"
	idPrefix       = "stream/id/"
	gonePrefix     = "stream/gone/"
	subjectPrefix  = "stream/subject/"
)

// KeyRules say where the keys of streams live on a store made of shards: a category's on one shard,
// with its topic's partitions.
func KeyRules() (rules []eventlog.KeyRule) {
	for _, prefix := range []string{categoryPrefix, headPrefix, eventPrefix, snapshotPrefix, idPrefix, gonePrefix, subjectPrefix, retainedPrefix, tagPrefix, taggedPrefix} {
		rules = append(rules, eventlog.KeyRule{Prefix: prefix, By: eventlog.ByFirst})
	}
	return rules
}

// nameMax bounds a stream's name in bytes. Escaped, it must still fit into an index of every store.
const nameMax = 255

// Config sets Streams up. The zero value of every field means its default.
type Config struct {
	Logger *slog.Logger // default: slog.Default()

	limits limits
}

// limits are bounds that only tests change; 0: the default.
type limits struct {
	IDAge time.Duration // how long an append without an expected version is recognised by its events' ids; default 24 h
}

// Streams are the streams of a log. Methods may be called concurrently.
type Streams struct {
	log *eventlog.Log
	cfg Config

	mu      sync.Mutex            // guards what follows
	writers map[string]*writer    // by the key of the head
	keys    map[string]subjectKey // by their key in the store

	followers map[eventlog.TopicID]*follower // by category
	counts    map[eventlog.TopicID]*Counts   // likewise

	following chan struct{} // has a value for each follower that reads
}

// New returns the streams of a log. They work while the log runs; their own Run only removes what
// is no longer needed.
func New(log *eventlog.Log, cfg Config) *Streams {
	if cfg.limits.IDAge <= 0 {
		cfg.limits.IDAge = 24 * time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Streams{
		log: log, cfg: cfg, writers: make(map[string]*writer), keys: make(map[string]subjectKey),
		followers: make(map[eventlog.TopicID]*follower), counts: make(map[eventlog.TopicID]*Counts), following: make(chan struct{}, followersRead),
	}
}

// Category is a topic of streams.
type Category struct {
	owner *Streams
	topic eventlog.Topic
}

// Spec describes a category to create.
type Spec struct {
	Name       string
	Partitions int               // default 4
	Settings   map[string]string // the settings of the category's topic; default: retention.ms is -1
	Retention  Retention         // which events of its streams are kept; default: all, for ever
}

// writerName marks a category's topic: only streams append to it.
const writerName = "streams"

// CreateCategory creates a topic for streams, durably. A topic that exists cannot become a
// category. ErrCategoryExists, or *eventlog.InvalidError if the name, the number of partitions or a
// setting is not allowed. After eventlog.ErrUnsure try again. If a process ended after it created
// the topic and before it made the topic a category, the next call completes that, with the topic's
// partitions and settings.
func (s *Streams) CreateCategory(ctx context.Context, spec Spec) (*Category, error) {
	c, err := s.createCategory(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("create category %q: %w", shorten(spec.Name), err)
	}
	return c, nil
}

func (s *Streams) createCategory(ctx context.Context, spec Spec) (*Category, error) {
	if eventlog.InternalTopic(spec.Name) {
		return nil, &eventlog.InvalidError{What: "category", Value: spec.Name, Why: "weir's own topics cannot be categories"}
	}
	settings := map[string]string{"retention.ms": "-1"}
	for name, value := range spec.Settings {
		settings[name] = value
	}
	if spec.Partitions == 0 {
		spec.Partitions = 4
	}
	if err := spec.Retention.check(); err != nil {
		return nil, err
	}
	topic, err := s.log.CreateTopic(ctx, eventlog.TopicSpec{Name: spec.Name, Partitions: spec.Partitions, Config: settings, Writer: writerName,
		Beside: func(id eventlog.TopicID) string { return categoryPrefix + id.String() }})
	exists := fmt.Errorf("%w: a topic or a category already has the name", ErrCategoryExists)
	if errors.Is(err, eventlog.ErrTopicExists) {
		if topic, err = s.log.TopicNow(ctx, spec.Name); err == nil && topic.Writer != writerName {
			err = exists
		}
	}
	if err != nil {
		return nil, err
	}
	key := categoryPrefix + topic.ID.String()
	e := eventlog.Entry{
		Checks: []eventlog.Check{{Key: key}}, Puts: []eventlog.Put{{Key: key, Version: 1, Value: categoryMark{Retention: spec.Retention}.encode()}},
	}
	if err = tell(ctx, s.log, &e, key, audit.Event{Verb: audit.CategoryCreate, Object: spec.Name, After: spec.Retention}); err == nil {
		_, err = s.log.Append(ctx, e)
	}
	switch {
	case errors.Is(err, eventlog.ErrStale):
		return nil, exists
	case err != nil:
		return nil, fmt.Errorf("%w: its topic exists, but may not be a category yet: try again (%v)", eventlog.ErrUnsure, err)
	}
	return &Category{owner: s, topic: topic}, nil
}

// Category returns a category by name.
func (s *Streams) Category(ctx context.Context, name string) (*Category, error) {
	topic, err := s.log.Topic(ctx, name)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return nil, fmt.Errorf("%w: %q", ErrUnknownCategory, shorten(name))
	}
	if err != nil {
		return nil, fmt.Errorf("category %q: %w", shorten(name), err)
	}
	kv, err := s.log.Get(ctx, categoryPrefix+topic.ID.String())
	if err != nil {
		return nil, fmt.Errorf("category %q: %w", shorten(name), err)
	}
	if kv.Version == 0 {
		return nil, fmt.Errorf("%w: %q is a topic, not a category", ErrUnknownCategory, shorten(name))
	}
	return &Category{owner: s, topic: topic}, nil
}

// EnsureCategory is CreateCategory if there is no topic of that name, and Category if there is one.
func (s *Streams) EnsureCategory(ctx context.Context, spec Spec) (*Category, error) {
	c, err := s.CreateCategory(ctx, spec)
	if errors.Is(err, ErrCategoryExists) {
		return s.Category(ctx, spec.Name)
	}
	return c, err
}

// Categories lists the names of all categories, sorted.
func (s *Streams) Categories(ctx context.Context) (names []string, err error) {
	err = s.eachCategory(ctx, func(c *Category, _ eventlog.KeyValue) error {
		names = append(names, c.Name())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list categories: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// eachCategory calls visit for every category that this process knows, with the key that makes it
// one.
func (s *Streams) eachCategory(ctx context.Context, visit func(*Category, eventlog.KeyValue) error) error {
	topics := s.topicsByMark()
	return s.log.ListAll(ctx, categoryPrefix, func(mark eventlog.KeyValue) error {
		if t, is := topics[mark.Key]; is {
			return visit(&Category{owner: s, topic: t}, mark)
		}
		return nil
	})
}

// topicsByMark returns all topics by the key that would make each a category.
func (s *Streams) topicsByMark() map[string]eventlog.Topic {
	topics := make(map[string]eventlog.Topic)
	for _, t := range s.log.Topics() {
		topics[categoryPrefix+t.ID.String()] = t
	}
	return topics
}

// Name is the name of the category, and of its topic.
func (c *Category) Name() string { return c.topic.Name }

// ID is the identity of the category's topic.
func (c *Category) ID() eventlog.TopicID { return c.topic.ID }

// knownTopic returns the category's topic with the settings that this process knows.
func (c *Category) knownTopic() (eventlog.Topic, error) {
	topic, err := c.owner.log.TopicByID(c.topic.ID)
	if err != nil {
		return topic, fmt.Errorf("%w: %q was deleted", ErrUnknownCategory, c.Name())
	}
	return topic, nil
}

// checkName refuses names that cannot be stream names.
func checkName(stream string) error {
	invalid := func(why string) error {
		return &eventlog.InvalidError{What: "stream name", Value: shorten(stream), Why: why}
	}
	switch {
	case stream == "":
		return invalid("it is empty")
	case len(stream) > nameMax:
		return invalid(fmt.Sprintf("it has %d bytes; at most %d are allowed", len(stream), nameMax))
	case !utf8.ValidString(stream):
		return invalid("it is not UTF-8")
	case !isText(stream):
		return invalid("it has control characters")
	}
	return nil
}

// isText reports whether a name is UTF-8 without control characters.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// key returns the key of a stream under a prefix. An escaped name has no slash, so keys that begin
// with a stream's key and a slash are of that stream.
func (c *Category) key(prefix, stream string) string {
	return prefix + c.topic.ID.String() + "/" + url.PathEscape(stream)
}

// eventKey returns the key of an event.
func (c *Category) eventKey(stream string, version int64) string {
	return c.key(eventPrefix, stream) + "/" + digits(version)
}

// digits writes a version so that keys are in the order of versions.
func digits(version int64) string { return fmt.Sprintf("%019d", version) }

// versionIn returns the version at the end of a key.
func versionIn(key string) (int64, error) {
	n, err := strconv.ParseInt(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %s does not end in a version: %w", key, err)
	}
	return n, nil
}
