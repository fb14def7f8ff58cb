package group

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

type (
	// Listed is a group in a list.
	Listed struct {
		Group        string
		ProtocolType string
		State        State
		Consumer     bool // it has members that speak Kafka's consumer protocol (KIP-848)
	}

	// Described is a group in full.
	Described struct {
		Group        string
		State        State
		Generation   int32
		ProtocolType string
		Protocol     string
		Members      []Member
		Peers        bool   // its members' partitions are assigned by weir: they are peers, or speak Kafka's consumer protocol
		Consumer     bool   // as Listed.Consumer
		Assignor     string // of a group with Peers: uniform or range
	}

	// Member is one member of a described group.
	Member struct {
		ID, Instance         string
		ClientID, ClientHost string
		Metadata, Assignment []byte

		// Of a group with Described.Peers.
		Kafka   bool     // it speaks Kafka's protocol
		Classic bool     // it speaks Kafka's classic protocol
		Epoch   int32    // the group's generation as it knows it
		Topics  []string // that it reads
		Pattern string   // the regular expression that they match; "": it named them itself
		Rack    string
		Has     []Share // by topic
		Target  []Share // what it has once all others have given up what they are to give up
	}

	// Share is a member's partitions of one topic.
	Share struct {
		Topic      string
		ID         eventlog.TopicID
		Partitions []int32 // in order
	}
)

// Partitions returns the partitions in the assignment of a member of type consumer, by topic; of a
// broken assignment, those that can be read.
func (m Member) Partitions() map[string][]int32 { return assigned(m.Assignment) }

// Filter says which groups to list. The zero value lists none.
type Filter struct {
	Prefixes []string // the prefixes of their names, none of which begins with another; "": all groups
	States   []string // Kafka's names of states, in upper or lower case; none means all

	// Room is called before groups are read, with the estimated bytes that they take in the list; a
	// negative number gives bytes back. Its error ends the listing. nil: no limit.
	Room func(bytes int) error
	held bool // fill in surveyed.held, too
}

// AllPrefixes selects all groups.
var AllPrefixes = []string{""}

// List returns the groups in these states, sorted by name, as Select does. No states mean all;
// names may be in upper or lower case.
func (c *Coordinator) List(ctx context.Context, states []string) ([]Listed, error) {
	return c.Select(ctx, Filter{Prefixes: AllPrefixes, States: states})
}

// Select returns groups, sorted by name. For each prefix it takes one trip per thousand groups, one
// per thousand owners and one per thousand peers; with Room, one per 64 of each.
func (c *Coordinator) Select(ctx context.Context, f Filter) ([]Listed, error) {
	seen, err := c.survey(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	wanted := make(map[string]bool) // a client may name a state any number of times
	for _, state := range f.States {
		wanted[strings.ToLower(state)] = true
	}
	var out []Listed
	names := 0 // bytes of names, in memory and encoded: listedCost is for short names
	for _, s := range seen {
		if len(f.States) == 0 || wanted[strings.ToLower(string(s.State))] {
			out = append(out, s.Listed)
			names += 2 * (len(s.Group) + len(s.ProtocolType))
		}
	}
	if f.Room != nil {
		if err := f.Room(names); err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Group, b.Group) })
	return out, nil
}

func (f Filter) names(group string) bool {
	return slices.ContainsFunc(f.Prefixes, func(prefix string) bool { return strings.HasPrefix(group, prefix) })
}

// listAll visits the keys of one kind that belong to the filter's groups. An escaped prefix is a
// prefix of the escaped name: each byte is escaped by itself.
func (c *Coordinator) listAll(ctx context.Context, kind string, f Filter, visit func(eventlog.KeyValue) error) error {
	for _, prefix := range f.Prefixes {
		err := listWithin(ctx, c.log, kind+url.PathEscape(prefix), listedCost, f.Room, func(kv eventlog.KeyValue) (keeps int, err error) {
			return listedCost, visit(kv)
		})
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrLoading, err)
		}
	}
	return nil
}

// surveyed is the summary of a group.
type surveyed struct {
	Listed
	version eventlog.Version
	members int
	held    []TopicPartition // by living peers, if Filter.held
}

// listedCost estimates the bytes of a group in a list, in memory and encoded.
const listedCost = 256

// survey returns summaries of groups, by name.
func (c *Coordinator) survey(ctx context.Context, f Filter) (map[string]surveyed, error) {
	asked := time.Now()
	peers, err := c.groupsOfPeers(ctx, f)
	if err != nil {
		return nil, err
	}
	owners, err := c.owners(ctx, f)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]surveyed)
	err = c.listAll(ctx, statePrefix, f, func(kv eventlog.KeyValue) error {
		var s storedState
		name, err := nameOfStateKey(kv.Key)
		if err == nil {
			err = json.Unmarshal(kv.Value, &s)
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", kv.Key, err)
		}
		o := surveyed{Listed: Listed{Group: name, ProtocolType: s.ProtocolType, State: Empty}, version: kv.Version, members: len(s.Members)}
		switch {
		case ofPeers(s.ProtocolType) && !peers[name]: // all members have expired
			o.ProtocolType, o.members = "", 0
		case ofPeers(s.ProtocolType):
			o.ProtocolType, o.State, o.Consumer = consumerProtocol, s.peerState(), s.ProtocolType == hostedProtocol
			if f.held {
				o.held, err = s.held()
			}
		case len(s.Members) > 0 && c.allExpired(silence(kv, owners[name], asked, c.silentFor), s):
			o.ProtocolType, o.members = "", 0
		case len(s.Members) > 0:
			o.State = Stable
		}
		seen[name] = o
		return err
	})
	if err != nil {
		return nil, err
	}
	// Groups that this process coordinates are newer in memory.
	for _, g := range c.all() {
		if !f.names(g.name) {
			continue
		}
		c.stay(g)
		if g.owned && len(g.members) > 0 && g.version >= seen[g.name].version {
			seen[g.name] = surveyed{Listed: Listed{Group: g.name, ProtocolType: g.protocolType, State: g.state}, members: len(g.members)}
		}
		g.unlock()
	}
	return seen, nil
}

// groupsOfPeers returns the groups that have living peers: one trip per thousand peers.
func (c *Coordinator) groupsOfPeers(ctx context.Context, f Filter) (map[string]bool, error) {
	groups, asked := make(map[string]bool), time.Now()
	err := c.listAll(ctx, memberPrefix, f, func(kv eventlog.KeyValue) error {
		name, s, err := parseHeartbeat(kv)
		s.age = c.silentFor(kv, asked)
		if err == nil && !c.isDead(s) {
			groups[name] = true
		}
		return err
	})
	return groups, err
}

// owners returns the heartbeat keys of all owners, by group: one trip per thousand.
func (c *Coordinator) owners(ctx context.Context, f Filter) (map[string]eventlog.KeyValue, error) {
	beats := make(map[string]eventlog.KeyValue)
	err := c.listAll(ctx, ownerPrefix, f, func(kv eventlog.KeyValue) error {
		name, err := nameOfOwnerKey(kv.Key)
		if err != nil {
			return fmt.Errorf("key %q: %w", kv.Key, err)
		}
		kv.Value = nil
		beats[name] = kv
		return nil
	})
	return beats, err
}

// all lists the groups in memory.
func (c *Coordinator) all() []*group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.groups))
}
