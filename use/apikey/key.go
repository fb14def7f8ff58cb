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
)

// Access is a kind of request that a key may make.
type Access string

// Admin includes the other two.
const (
	Read  Access = "read"  // read records, be a member of groups, commit offsets; claim and acknowledge messages of queues
	Write Access = "write" // publish records, enqueue messages
	Admin Access = "admin" // make, change and delete topics and queues, reset and delete groups, and everything else
)

// Bounds of a key.
const (
	nameMax     = 128 // bytes of its name
	PrefixesMax = 100 // topic prefixes, and as many group prefixes and queue prefixes
	groupMax    = 512 // bytes of a group prefix, as of a group's name
)

// Errors that say why a secret is not valid.
var (
	ErrUnknown  = errors.New("no such API key")
	ErrRevoked  = errors.New("the API key is revoked")
	ErrExpired  = errors.New("the API key has expired")
	ErrNotYet   = errors.New("the API key is not valid yet")
	ErrTooMany  = errors.New("too many API keys")
	ErrDamaged  = errors.New("the API key's state cannot be read")
	errNoAccess = &eventlog.InvalidError{What: "access", Value: "", Why: "it is empty; read, write and admin are allowed"}
)

// Spec describes a key to create.
type Spec struct {
	Name    string    // for people; several keys may share one
	Access  []Access  // at least one
	From    time.Time // valid from then on; zero: immediately
	Expires time.Time // valid before then; zero: for ever

	// The key is for topics whose names begin with one of Topics, and for consumer groups whose
	// names begin with one of Groups; AllTopics and AllGroups mean all. Without Groups and
	// AllGroups, Topics are also the prefixes of groups. The key is for work queues whose names
	// begin with one of Queues; AllQueues means all. Without Queues and AllQueues, Topics are also
	// the prefixes of queues, and with AllTopics and AllGroups the key is for all queues. A key may
	// be for queues only: it reaches their topics through the queues.
	Topics, Groups, Queues          []string
	AllTopics, AllGroups, AllQueues bool
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

	Topics    []string `json:"topics,omitempty"` // prefixes; none: no topic, unless AllTopics
	Groups    []string `json:"groups,omitempty"` // the same
	AllTopics bool     `json:"all_topics,omitempty"`
	AllGroups bool     `json:"all_groups,omitempty"`
	Queues    []string `json:"queues,omitempty"` // prefixes, as for topics; a key from before there were queues has none
	AllQueues bool     `json:"all_queues,omitempty"`
}

// stored is the value of a key's state.
type stored struct {
	Key
	SHA256 string `json:"sha256"` // of the whole secret, in hexadecimal digits

	sum [sha256.Size]byte // SHA256, decoded
}

// check returns an error if such a key is not allowed.
func (s Spec) check(now time.Time) error {
	invalid := func(what, value, why string) error { return &eventlog.InvalidError{What: what, Value: value, Why: why} }
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case s.Name == "" || len(s.Name) > nameMax:
		return invalid("name of an API key", s.Name[:min(len(s.Name), nameMax)], fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(s.Name), nameMax))
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, unprintable):
		return invalid("name of an API key", s.Name, "it has characters that cannot be printed")
	case len(s.Access) == 0:
		return errNoAccess
	case s.AllTopics && len(s.Topics) > 0, !s.AllTopics && len(s.Topics) == 0 && !s.forQueues():
		return invalid("number of topic prefixes", strconv.Itoa(len(s.Topics)), "give either topic prefixes or all topics, not both")
	case s.AllQueues && len(s.Queues) > 0:
		return invalid("number of queue prefixes", strconv.Itoa(len(s.Queues)), "give either queue prefixes or all queues, not both")
	case s.AllGroups && len(s.Groups) > 0:
		return invalid("number of group prefixes", strconv.Itoa(len(s.Groups)), "give either group prefixes or all groups, not both")
	case s.AllTopics && !s.AllGroups && len(s.Groups) == 0 && !onlyWrites(s.Access):
		return invalid("number of group prefixes", "0", "a key that reads all topics needs group prefixes or all groups")
	case len(s.Topics) > PrefixesMax:
		return invalid("number of topic prefixes", strconv.Itoa(len(s.Topics)), fmt.Sprintf("the limit is %d", PrefixesMax))
	case len(s.Groups) > PrefixesMax:
		return invalid("number of group prefixes", strconv.Itoa(len(s.Groups)), fmt.Sprintf("the limit is %d", PrefixesMax))
	case len(s.Queues) > PrefixesMax:
		return invalid("number of queue prefixes", strconv.Itoa(len(s.Queues)), fmt.Sprintf("the limit is %d", PrefixesMax))
	case !s.Expires.IsZero() && !s.Expires.After(now):
		return invalid("time of expiry", s.Expires.Format(time.RFC3339), "it is in the past: the time is "+now.Format(time.RFC3339))
	case !s.Expires.IsZero() && !s.From.Before(s.Expires):
		return invalid("time of expiry", s.Expires.Format(time.RFC3339), "it must be after the start of validity, "+s.From.Format(time.RFC3339))
	}
	for _, a := range s.Access {
		if a != Read && a != Write && a != Admin {
			return invalid("access", string(a), "read, write and admin are allowed")
		}
	}
	for _, prefix := range s.Topics {
		if err := eventlog.CheckTopicName(prefix); err != nil {
			return fmt.Errorf("topic prefix: %w", err)
		}
	}
	for _, prefix := range s.Queues {
		if err := eventlog.CheckTopicName(prefix); err != nil { // queues are named as topics are
			return fmt.Errorf("queue prefix: %w", err)
		}
	}
	for _, prefix := range s.Groups {
		switch {
		case prefix == "" || len(prefix) > groupMax:
			return invalid("group prefix", prefix[:min(len(prefix), groupMax)], fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(prefix), groupMax))
		case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unprintable):
			return invalid("group prefix", prefix, "it has characters that cannot be printed")
		}
	}
	return nil
}

// forQueues reports whether the key names queues.
func (s Spec) forQueues() bool { return s.AllQueues || len(s.Queues) > 0 }

// onlyWrites reports whether the key has no access to groups.
func onlyWrites(access []Access) bool {
	return !slices.Contains(access, Read) && !slices.Contains(access, Admin)
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
	return id.Has(a) && (id.key.AllTopics || begins(topic, id.key.Topics))
}

// Administers reports whether the key is an administrator's: it may do everything to every topic,
// group and queue, so that no key that it could create may do more. A key for only some queues is
// none, though it may do what belongs to no single topic or group.
func (id Identity) Administers() bool { return id.May(Admin, "") && id.key.AllQueues }

// MayGroup reports whether this access to the consumer group is allowed. May decides about the
// topics that the group reads.
func (id Identity) MayGroup(a Access, group string) bool {
	return id.Has(a) && (id.key.AllGroups || begins(group, id.key.Groups))
}

// MayQueue reports whether this access to the work queue, and to its messages in whatever topic, is
// allowed.
func (id Identity) MayQueue(a Access, queue string) bool {
	return id.Has(a) && (id.key.AllQueues || begins(queue, id.key.Queues))
}

// GroupPrefixes returns the prefixes of the consumer groups that the key is for; "" for all. No
// prefix begins with another prefix.
func (id Identity) GroupPrefixes() []string { return prefixes(id.key.AllGroups, id.key.Groups) }

// QueuePrefixes returns the prefixes of the work queues that the key is for; "" for all. No prefix
// begins with another prefix.
func (id Identity) QueuePrefixes() []string { return prefixes(id.key.AllQueues, id.key.Queues) }

func prefixes(all bool, some []string) []string {
	if all {
		return []string{""}
	}
	var apart []string
	for _, prefix := range slices.Sorted(slices.Values(some)) {
		if prefix != "" && !begins(prefix, apart) { // an empty prefix matches no name
			apart = append(apart, prefix)
		}
	}
	return apart
}

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
