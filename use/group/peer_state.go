package group

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// The keys of a group of peers:
//
//	group/state/<group>          the members, and the partitions of each; a peer that finds it outdated writes a new state
//	group/member/<group>/<peer>  one peer's heartbeat, put again every Heartbeat; its age, by the store's clock, is how long the peer has been silent
//
// The state gives a partition to a member, and takes it away in two cases only: the member gives it
// back, or the group evicts the member. So a member may act on a state that it read a while ago, as
// long as its commits check that the state's version is the one it knows.
const (
	// peerProtocol is the protocol type of a group of peers, in the store.
	peerProtocol = "weir"
	// hostedProtocol is the protocol type of a group of peers in which a host has members. An older
	// weir, which knows no hosts, takes it for the type of members with a coordinator that has put
	// the owner's key: so it leaves the group alone, and tells its clients why. The hosts put that
	// key only for older weirs.
	hostedProtocol = "weir+kafka"
	memberPrefix   = "group/member/"
)

func memberKeysOf(group string) string    { return memberPrefix + url.PathEscape(group) + "/" }
func memberKey(group, peer string) string { return memberKeysOf(group) + url.PathEscape(peer) }

// ofPeers reports whether members of this protocol type are peers, or have a host.
func ofPeers(protocolType string) bool {
	return protocolType == peerProtocol || protocolType == hostedProtocol
}

// storedPeer is the value of a peer's heartbeat key: what the other peers need in order to add it.
type storedPeer struct {
	Client    string   `json:"client,omitempty"`
	Host      string   `json:"host,omitempty"`
	Topics    []string `json:"topics"`
	SessionMS int64    `json:"session_ms"`

	Hosts      bool `json:"hosts,omitempty"`       // it is the heartbeat of a host, which is no member itself
	KnowsHosts bool `json:"knows_hosts,omitempty"` // its weir can share a group with members that have a host
}

// storedShare is a member's partitions of one topic, as part of the group's state. A member that
// has a host has one share of the topic for each generation that gave it some of the partitions.
type storedShare struct {
	Topic    string  `json:"topic"`
	ID       string  `json:"id"`
	Since    int32   `json:"since,omitempty"`
	Own      []int32 `json:"own,omitempty"`
	Revoking []int32 `json:"revoking,omitempty"`
}

// membership is a group of peers as in its stored state. It is never changed, only replaced.
type membership struct {
	version    eventlog.Version
	generation int32
	maker      string       // see storedState.MadeBy
	members    []peerMember // by id
	hosted     bool         // it is stored as one that has members with a host
	// expiredOwner is the last heartbeat of the coordinator whose members have expired, in a group
	// that is not one of peers yet.
	expiredOwner *eventlog.KeyValue
}

// peerMember is one member of a membership: a peer, or a member that has a host.
type peerMember struct {
	id       string
	info     storedPeer
	kafka    kafkaMember      // of a member that has a host
	own      []TopicPartition // in order
	revoking []TopicPartition // in order: the peer still has them, and another peer waits for them
	names    map[eventlog.TopicID]string
	// since is for a member that has a host: the generation that gave it each of its partitions,
	// whichever process was its host then (KIP-1251). 0: not known, or long ago (sincesMax). A
	// partition that is not in since is given to it by the next write.
	since map[TopicPartition]int32
}

// kafkaMember is what the state has of a member that speaks Kafka's protocol to its host.
// It is zero for a peer.
type kafkaMember struct {
	host      string // the id of the host's heartbeat key
	instance  string // of a static member
	classic   bool   // it speaks the classic protocol, and its host is its coordinator
	away      bool   // the static member has left for a while: it may come back as another member
	rack      string
	assignor  string        // that it wishes for; "": any
	pattern   string        // the regular expression that its topics match; "": it named them itself
	rebalance time.Duration // how long it may take to give up partitions
}

func (r membership) hasHosted() bool {
	return slices.ContainsFunc(r.members, func(m peerMember) bool { return m.kafka.host != "" })
}

func (r membership) find(id string) (peerMember, bool) {
	i, ok := slices.BinarySearchFunc(r.members, id, func(s peerMember, id string) int { return cmp.Compare(s.id, id) })
	if !ok {
		return peerMember{}, false
	}
	return r.members[i], true
}

func (s peerMember) has(tp TopicPartition) bool { return holds(s.own, tp) || holds(s.revoking, tp) }

// holds reports whether tp is among tps, which are in the order of byPlace.
func holds(tps []TopicPartition, tp TopicPartition) bool {
	_, is := slices.BinarySearchFunc(tps, tp, byPlace)
	return is
}

// readMembership reads a group's state: one store call, and one more if its members are not peers.
// The membership is empty if the group does not exist, has no members, or has only expired members
// of another kind. If members of another kind are alive, the error is ErrInconsistentProtocol.
func readMembership(ctx context.Context, log *eventlog.Log, group string, of silentFor) (membership, error) {
	kv, err := log.Get(ctx, StateKey(group))
	if err != nil {
		return membership{}, fmt.Errorf("read the group's state: %w (%w)", ErrUnavailable, err)
	}
	r := membership{version: kv.Version}
	if kv.Version == 0 {
		return r, nil
	}
	var s storedState
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return r, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	r.generation, r.maker, r.hosted = s.Generation, s.MadeBy, s.ProtocolType == hostedProtocol
	if len(s.Members) > 0 && !ofPeers(s.ProtocolType) {
		asked := time.Now()
		beat, err := log.Get(ctx, ownerKey(group))
		if err != nil {
			return membership{}, fmt.Errorf("read the record of the group's coordinator: %w (%w)", ErrUnavailable, err)
		}
		silent := silence(kv, beat, asked, of)
		if !allExpired(log, silent, s) {
			return r, fmt.Errorf("group %q: %w: it has %d members of type %q, which use a coordinator. Stop them, or choose another group. "+
				"If they have stopped already, try again when the group has had no coordinator for %v; it has had none for %v",
				group, ErrInconsistentProtocol, len(s.Members), s.ProtocolType, s.longestSession(), silent.Round(time.Millisecond))
		}
		r.expiredOwner = &beat
		return r, nil
	}
	for _, m := range s.Members {
		decoded, err := m.peerMember()
		if err != nil {
			return r, fmt.Errorf("key %q: member %q: %w", kv.Key, m.ID, err)
		}
		r.members = append(r.members, decoded)
	}
	slices.SortFunc(r.members, byMemberID)
	return r, nil
}

func byMemberID(a, b peerMember) int { return cmp.Compare(a.id, b.id) }

// peerMember parses a stored member that is a peer, or has a host.
func (m storedMember) peerMember() (peerMember, error) {
	s := peerMember{id: m.ID, names: make(map[eventlog.TopicID]string), since: make(map[TopicPartition]int32),
		info: storedPeer{Client: m.ClientID, Host: m.ClientHost, Topics: m.Topics, SessionMS: m.SessionMS},
		kafka: kafkaMember{
			host: m.HostedBy, instance: m.Instance, classic: m.Classic, away: m.Away, rack: m.Rack, assignor: m.Assignor, pattern: m.Pattern,
			rebalance: time.Duration(m.RebalanceMS) * time.Millisecond,
		}}
	for _, h := range m.Holds {
		id, err := hex.DecodeString(h.ID)
		if err != nil || len(id) != len(eventlog.TopicID{}) {
			return s, fmt.Errorf("topic %q has the id %q, which is not a topic id", h.Topic, h.ID)
		}
		topic := eventlog.TopicID(id)
		s.names[topic] = h.Topic
		for _, n := range h.Own {
			s.own = append(s.own, TopicPartition{topic, n})
		}
		for _, n := range h.Revoking {
			s.revoking = append(s.revoking, TopicPartition{topic, n})
		}
		if s.kafka.host != "" {
			for _, n := range slices.Concat(h.Own, h.Revoking) {
				s.since[TopicPartition{topic, n}] = h.Since
			}
		}
	}
	slices.SortFunc(s.own, byPlace)
	slices.SortFunc(s.revoking, byPlace)
	return s, nil
}

// peerState is the state of a group of peers. Only groups with members that have a host are ever
// Reconciling: Kafka's clients know this state of groups of the consumer protocol.
func (s storedState) peerState() State {
	if s.ProtocolType == hostedProtocol && slices.ContainsFunc(s.Members, func(m storedMember) bool {
		return slices.ContainsFunc(m.Holds, func(h storedShare) bool { return len(h.Revoking) > 0 })
	}) {
		return Reconciling
	}
	return Stable
}

// held returns the partitions of all peers.
func (s storedState) held() (all []TopicPartition, err error) {
	for _, m := range s.Members {
		p, err := m.peerMember()
		if err != nil {
			return nil, err
		}
		all = append(append(all, p.own...), p.revoking...)
	}
	return all, nil
}

// reads returns a peer's partitions by topic name.
func (m storedMember) reads() reading {
	r := reading{}
	for _, h := range m.Holds {
		r[h.Topic] = append(append(r[h.Topic], h.Own...), h.Revoking...)
	}
	return r
}

func byPlace(a, b TopicPartition) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// encode returns the value of the group's state key.
func (r membership) encode(group string) ([]byte, error) {
	s := storedState{Generation: r.generation, MadeBy: r.maker}
	if len(r.members) > 0 {
		s.ProtocolType, s.Protocol = peerProtocol, peerProtocol
	}
	if r.hasHosted() {
		s.ProtocolType = hostedProtocol
	}
	for _, m := range r.members {
		s.Members = append(s.Members, storedMember{
			ID: m.id, ClientID: m.info.Client, ClientHost: m.info.Host, SessionMS: m.info.SessionMS, Topics: m.info.Topics, Holds: m.shares(),
			HostedBy: m.kafka.host, Instance: m.kafka.instance, Classic: m.kafka.classic, Away: m.kafka.away, Rack: m.kafka.rack, Assignor: m.kafka.assignor, Pattern: m.kafka.pattern,
			RebalanceMS: m.kafka.rebalance.Milliseconds(),
		})
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", group, err)
	}
	if len(value) > stateMax && slices.ContainsFunc(r.members, func(m peerMember) bool { return m.since != nil }) {
		r.members = slices.Clone(r.members)
		for i := range r.members {
			r.members[i].since = nil // it is only needed when a broker ends
		}
		return r.encode(group)
	}
	if len(value) > stateMax {
		return nil, fmt.Errorf("group %q: %w: its state of %d members would take %d bytes, the limit is %d",
			group, ErrTooLarge, len(r.members), len(value), stateMax)
	}
	return value, nil
}

// grantedBy notes that a generation gave the members what they have now and did not have before.
func grantedBy(generation int32, members []peerMember) {
	for i, m := range members {
		if m.kafka.host == "" {
			members[i].since = nil
			continue
		}
		since := make(map[TopicPartition]int32, len(m.own)+len(m.revoking))
		for _, tp := range slices.Concat(m.own, m.revoking) {
			since[tp] = generation
			if was, had := m.since[tp]; had {
				since[tp] = was
			}
		}
		forgetOld(since)
		members[i].since = since
	}
}

// sincesMax is how many generations the state names for one member, since each takes a share of its
// own for each topic. Older ones are of little use: the partitions of which a member does not know
// yet were given to it by the last generations.
const sincesMax = 4

// forgetOld sets generations to 0 that are older than the newest sincesMax.
func forgetOld(since map[TopicPartition]int32) {
	all := slices.Compact(slices.Sorted(maps.Values(since)))
	if len(all) <= sincesMax {
		return
	}
	oldest := all[len(all)-sincesMax]
	for tp, generation := range since {
		if generation < oldest {
			since[tp] = 0
		}
	}
}

// shares lists a member's partitions by topic name, and by the generation that gave them.
func (s peerMember) shares() []storedShare {
	type given struct {
		topic eventlog.TopicID
		since int32
	}
	by := make(map[given]*storedShare)
	share := func(tp TopicPartition) *storedShare {
		of := given{tp.Topic, s.since[tp]}
		if by[of] == nil {
			by[of] = &storedShare{Topic: s.names[tp.Topic], ID: tp.Topic.String(), Since: of.since}
		}
		return by[of]
	}
	for _, tp := range s.own {
		share(tp).Own = append(share(tp).Own, tp.Partition)
	}
	for _, tp := range s.revoking {
		share(tp).Revoking = append(share(tp).Revoking, tp.Partition)
	}
	var out []storedShare
	for _, sh := range by {
		out = append(out, *sh)
	}
	slices.SortFunc(out, func(a, b storedShare) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Since, b.Since))
	})
	return out
}

// heartbeat is a peer's heartbeat key as the store has it.
type heartbeat struct {
	id      string
	version eventlog.Version
	age     time.Duration
	info    storedPeer
}

func (s heartbeat) session() time.Duration { return time.Duration(s.info.SessionMS) * time.Millisecond }

func (s heartbeat) dead() bool { return s.age > s.session() }

// listHeartbeats reads the heartbeats of a group's peers: one store call per thousand.
func listHeartbeats(ctx context.Context, log *eventlog.Log, group string, of silentFor) (beats []heartbeat, err error) {
	asked := time.Now()
	err = log.ListAll(ctx, memberKeysOf(group), func(kv eventlog.KeyValue) error {
		_, s, err := parseHeartbeat(kv)
		s.age = of(kv, asked)
		beats = append(beats, s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats of group %q: %w", group, err)
	}
	return beats, nil
}

func parseHeartbeat(kv eventlog.KeyValue) (group string, s heartbeat, err error) {
	s = heartbeat{version: kv.Version, age: kv.Age}
	escaped, peer, _ := strings.Cut(strings.TrimPrefix(kv.Key, memberPrefix), "/")
	group, err = url.PathUnescape(escaped)
	id, err2 := url.PathUnescape(peer)
	s.id = id
	if err = cmp.Or(err, err2, json.Unmarshal(kv.Value, &s.info)); err != nil {
		return "", s, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	return group, s, nil
}
