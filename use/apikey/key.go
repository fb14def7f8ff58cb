package apikey

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// Access is a kind of request that a key may make.
type Access string

// Admin includes Read and Write, and for all topics and groups also Metrics.
const (
	Read  Access = "read"  // read records, be a member of groups, commit offsets; claim and acknowledge messages of queues
	Write Access = "write" // publish records, enqueue messages
	Admin Access = "admin" // make, change and delete topics and queues, reset and delete groups, and everything else

	Metrics Access = "metrics" // read the metrics of each process, whatever topics, groups and queues the key is for
)

// Bounds of a key.
const (
	nameMax     = 128 // bytes of its name
	PrefixesMax = 100 // prefixes and names of topics together, and as many of groups and of queues
	groupMax    = 512 // bytes of a group's name, and so of a prefix
)

// Errors that say why a secret is not valid.
var (
	ErrUnknown  = errors.New("no such API key")
	ErrRevoked  = errors.New("the API key is revoked")
	ErrExpired  = errors.New("the API key has expired")
	ErrNotYet   = errors.New("the API key is not valid yet")
	ErrTooMany  = errors.New("too many API keys")
	ErrDamaged  = errors.New("the API key's state cannot be read")
	errNoAccess = &eventlog.InvalidError{What: "access", Value: "", Why: "it is empty; " + accesses}
)

// Spec describes a key to create.
type Spec struct {
	Name    string    // for people; several keys may share one
	Access  []Access  // at least one
	From    time.Time // valid from then on; zero: immediately
	Expires time.Time // valid before then; zero: for ever

	// The key is for topics whose names begin with one of Topics, and for those with a name in
	// TopicNames; AllTopics means all. The same is said of consumer groups, and of work queues.
	//
	// If nothing is said of groups, the prefixes and names of topics are also those of groups. If
	// nothing is said of queues, they are also those of queues; with AllTopics and AllGroups the
	// key is then for all queues. A key may be for queues only: it reaches their topics through the
	// queues. For a key that is only for Metrics none of these may be given.
	Topics, Groups, Queues             []string
	TopicNames, GroupNames, QueueNames []string
	AllTopics, AllGroups, AllQueues    bool
}

// Key is a key without its secret, which is not stored.
type Key struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Access  []Access  `json:"access"`
	Created time.Time `json:"created"`
	From    time.Time `json:"from,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`

	Topics    []string `json:"topics,omitempty"` // prefixes; none, and no names: no topic, unless AllTopics
	Groups    []string `json:"groups,omitempty"` // the same
	AllTopics bool     `json:"all_topics,omitempty"`
	AllGroups bool     `json:"all_groups,omitempty"`
	Queues    []string `json:"queues,omitempty"` // prefixes, as for topics; a key from before there were queues has none
	AllQueues bool     `json:"all_queues,omitempty"`

	// Names are not kept among the prefixes: a version that knows only prefixes refuses a key with
	// a field that it does not know (decode), and does not take a name for a prefix.
	TopicNames []string `json:"topic_names,omitempty"`
	GroupNames []string `json:"group_names,omitempty"`
	QueueNames []string `json:"queue_names,omitempty"`
}

// scope is which topics, groups or queues a key is for.
type scope struct {
	all             bool
	prefixes, names []string
}

func (s Spec) topics() scope { return scope{s.AllTopics, s.Topics, s.TopicNames} }
func (s Spec) groups() scope { return scope{s.AllGroups, s.Groups, s.GroupNames} }
func (s Spec) queues() scope { return scope{s.AllQueues, s.Queues, s.QueueNames} }
func (k Key) topics() scope  { return scope{k.AllTopics, k.Topics, k.TopicNames} }
func (k Key) groups() scope  { return scope{k.AllGroups, k.Groups, k.GroupNames} }
func (k Key) queues() scope  { return scope{k.AllQueues, k.Queues, k.QueueNames} }

// given returns how many prefixes and names the scope has.
func (s scope) given() int { return len(s.prefixes) + len(s.names) }

// none reports whether the scope says nothing.
func (s scope) none() bool { return !s.all && s.given() == 0 }

// has reports whether the scope has a name. An empty name or prefix stands for nothing.
func (s scope) has(name string) bool {
	return s.all || begins(name, s.prefixes) || name != "" && slices.Contains(s.names, name)
}

// beginnings returns prefixes of all names that the scope has, and perhaps of others; "" for all.
// No prefix begins with another prefix.
func (s scope) beginnings() []string {
	if s.all {
		return []string{""}
	}
	var apart []string
	for _, prefix := range slices.Sorted(slices.Values(slices.Concat(s.prefixes, s.names))) {
		if prefix != "" && !begins(prefix, apart) {
			apart = append(apart, prefix)
		}
	}
	return apart
}

// Patterns shows which names a key is for: its names, and its prefixes with a * at the end.
func Patterns(prefixes, names []string) []string {
	shown := slices.Clone(names)
	for _, prefix := range prefixes {
		shown = append(shown, prefix+"*")
	}
	return shown
}

// stored is the value of a key's state.
type stored struct {
	Key
	SHA256 string `json:"sha256"` // of the whole secret, in hexadecimal digits

	sum [sha256.Size]byte // SHA256, decoded
}

func invalid(what, value, why string) error {
	return &eventlog.InvalidError{What: what, Value: value, Why: why}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

const accesses = "read, write, admin and metrics are allowed"

// check returns an error if such a key is not allowed.
func (s Spec) check(now time.Time) error {
	switch {
	case s.Name == "" || len(s.Name) > nameMax:
		return invalid("name of an API key", s.Name[:min(len(s.Name), nameMax)], fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(s.Name), nameMax))
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, unprintable):
		return invalid("name of an API key", s.Name, "it has characters that cannot be printed")
	case len(s.Access) == 0:
		return errNoAccess
	}
	for _, a := range s.Access {
		if a != Read && a != Write && a != Admin && a != Metrics {
			return invalid("access", string(a), accesses)
		}
	}
	if err := s.topics().check("topic", eventlog.CheckTopicName); err != nil {
		return err
	}
	if err := s.queues().check("queue", eventlog.CheckTopicName); err != nil { // queues are named as topics are
		return err
	}
	if err := s.groups().check("group", checkGroup); err != nil {
		return err
	}
	switch alone := onlyMetrics(s.Access); {
	case alone && !(s.topics().none() && s.groups().none() && s.queues().none()):
		return invalid("access", string(Metrics), "a key for metrics alone is for no topics, groups and queues")
	case !alone && s.topics().none() && s.queues().none():
		return invalid("number of topics", "0", "give prefixes or names of topics or of queues, or all topics, or all queues")
	case s.AllTopics && s.groups().none() && !onlyWrites(s.Access):
		return invalid("number of groups", "0", "a key that reads all topics needs prefixes or names of groups, or all groups")
	case !s.Expires.IsZero() && !s.Expires.After(now):
		return invalid("time of expiry", s.Expires.Format(time.RFC3339), "it is in the past: the time is "+now.Format(time.RFC3339))
	case !s.Expires.IsZero() && !s.From.Before(s.Expires):
		return invalid("time of expiry", s.Expires.Format(time.RFC3339), "it must be after the start of validity, "+s.From.Format(time.RFC3339))
	}
	return nil
}

// check returns an error if a scope of topics, groups or queues is not allowed.
func (s scope) check(kind string, check func(string) error) error {
	switch {
	case s.all && s.given() > 0:
		return invalid("number of "+kind+"s", strconv.Itoa(s.given()), "give either prefixes and names of "+kind+"s, or all of them, not both")
	case s.given() > PrefixesMax:
		return invalid("number of "+kind+"s", strconv.Itoa(s.given()), fmt.Sprintf("the limit of prefixes and names is %d", PrefixesMax))
	}
	for _, prefix := range s.prefixes {
		if err := check(prefix); err != nil {
			return fmt.Errorf("%s prefix: %w", kind, err)
		}
	}
	for _, name := range s.names {
		if err := check(name); err != nil {
			return fmt.Errorf("%s name: %w", kind, err)
		}
		if name == acl.Everything { // only a group may have this name
			return invalid("name of a "+kind, name, "it would be taken for all groups, as in Kafka's ACLs")
		}
	}
	return nil
}

// checkGroup returns an error if a text cannot be the name of a group, or its beginning.
func checkGroup(name string) error {
	switch {
	case name == "" || len(name) > groupMax:
		return invalid("name of a group", name[:min(len(name), groupMax)], fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(name), groupMax))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable):
		return invalid("name of a group", name, "it has characters that cannot be printed")
	}
	return nil
}

// onlyWrites reports whether the key has no access to groups.
func onlyWrites(access []Access) bool {
	return !slices.Contains(access, Read) && !slices.Contains(access, Admin)
}

// onlyMetrics reports whether the key has no access to topics, groups and queues.
func onlyMetrics(access []Access) bool {
	return len(access) > 0 && !slices.ContainsFunc(access, func(a Access) bool { return a != Metrics })
}

// state is nil while the key is valid. Age is the time since its creation by the store's clock:
// other machines' clocks do not matter.
func (k Key) state(age time.Duration) error {
	at := k.Created.Add(age)
	switch {
	case !k.Revoked.IsZero():
		return ErrRevoked
	case !k.Expires.IsZero() && !at.Before(k.Expires):
		return fmt.Errorf("%w on %s", ErrExpired, k.Expires.Format(time.RFC3339))
	case at.Before(k.From):
		return fmt.Errorf("%w: it is valid from %s", ErrNotYet, k.From.Format(time.RFC3339))
	}
	return nil
}

// Identity is the caller: a key, or Everybody.
type Identity struct{ key Key }

// Everybody is the caller if no keys are required. It may do everything.
var Everybody = Identity{Key{Access: []Access{Admin}, AllTopics: true, AllGroups: true, AllQueues: true}}

// ID returns the key's id; it is empty for Everybody.
func (id Identity) ID() string { return id.key.ID }

// Name returns the key's name, for people; it is empty for Everybody.
func (id Identity) Name() string { return id.key.Name }

// May reports whether this access to the topic is allowed; topic "" stands for what belongs to no
// single topic or group, which needs a key for all topics and all groups.
func (id Identity) May(a Access, topic string) bool {
	if topic == "" {
		return id.Has(a) && id.key.AllTopics && id.key.AllGroups
	}
	return id.Has(a) && id.key.topics().has(topic) && (topic != eventlog.AuditTopic || id.key.audits())
}

// audits reports whether a key that is for the topic of the audit may use it. Its events show what
// otherwise only administrators see, so the key must be an administrator's, or say the topic's
// whole name.
func (k Key) audits() bool {
	named := func(names []string) bool { return slices.Contains(names, eventlog.AuditTopic) }
	return (Identity{k}).Administers() || named(k.TopicNames) || named(k.Topics)
}

// Administers reports whether the key is an administrator's: it may do everything to every topic,
// group and queue, so that no key that it could create may do more. A key for only some queues is
// not an administrator's, though it may do what belongs to no single topic or group.
func (id Identity) Administers() bool { return id.May(Admin, "") && id.key.AllQueues }

// MayMetrics reports whether the key may read the metrics of a process.
func (id Identity) MayMetrics() bool {
	return slices.Contains(id.key.Access, Metrics) || id.May(Admin, "")
}

// MayGroup reports whether this access to the consumer group is allowed. May decides about the
// topics that the group reads.
func (id Identity) MayGroup(a Access, group string) bool {
	return id.Has(a) && id.key.groups().has(group)
}

// MayQueue reports whether this access to the work queue, and to its messages in whatever topic, is
// allowed.
func (id Identity) MayQueue(a Access, queue string) bool {
	return id.Has(a) && id.key.queues().has(queue)
}

// GroupPrefixes returns prefixes of all consumer groups that the key is for; "" for all. MayGroup
// decides about each group that begins so. No prefix begins with another prefix.
func (id Identity) GroupPrefixes() []string { return id.key.groups().beginnings() }

// QueuePrefixes returns prefixes of all work queues that the key is for; "" for all. MayQueue
// decides about each queue that begins so. No prefix begins with another prefix.
func (id Identity) QueuePrefixes() []string { return id.key.queues().beginnings() }

// begins reports whether a name begins with one of the prefixes. An empty prefix matches no name.
func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return prefix != "" && strings.HasPrefix(name, prefix) })
}

// Has reports whether this access is allowed for some topics, groups or queues at least.
func (id Identity) Has(a Access) bool {
	return slices.Contains(id.key.Access, a) || slices.Contains(id.key.Access, Admin)
}

func (id Identity) String() string {
	if id.key.ID == "" {
		return "everybody"
	}
	return fmt.Sprintf("%q (%s)", id.key.Name, id.key.ID)
}
