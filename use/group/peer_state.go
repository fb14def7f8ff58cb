package group

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Where peers meet:
//
//	group/state/<group>          the members, and what each of them has: the truth, changed by whoever sees that it no longer fits
//	group/member/<group>/<peer>  one peer's sign of life, put anew every Heartbeat; its age by the store's clock is the peer's silence
//
// A partition is given to a member in the state, and leaves it in two ways only: the member gives it back, or the group takes the member
// for dead. So a member may act on a state that it read a while ago, as long as its commits check that the state's version is the one it knows.
const (
	// peerProtocol is the protocol type of a group of peers, in the store.
	peerProtocol = "weir"
	memberPrefix = "group/member/"
)

func memberKeysOf(group string) string    { return memberPrefix + url.PathEscape(group) + "/" }
func memberKey(group, peer string) string { return memberKeysOf(group) + url.PathEscape(peer) }

// storedPeer is the value of a peer's sign of life: what the others must know to take it in.
type storedPeer struct {
	Client    string   `json:"client,omitempty"`
	Host      string   `json:"host,omitempty"`
	Topics    []string `json:"topics"`
	SessionMS int64    `json:"session_ms"`
}

// storedShare is what a peer has of one topic, as part of the group's state.
type storedShare struct {
	Topic    string  `json:"topic"`
	ID       string  `json:"id"`
	Own      []int32 `json:"own,omitempty"`
	Revoking []int32 `json:"revoking,omitempty"`
}

// roster is a group of peers as its state says. It is never changed, only replaced.
type roster struct {
	version    eventlog.Version
	generation int32
	members    []seat // by id
	// lapsed is the last sign of the coordinator whose members are gone, in a group that is not one of peers yet.
	lapsed *eventlog.KeyValue
}

// seat is one peer's place in a roster.
type seat struct {
	id       string
	about    storedPeer
	own      []TopicPartition // in order
	revoking []TopicPartition // in order: the peer still has them, and another waits
	names    map[eventlog.TopicID]string
}

func (r roster) find(id string) (seat, bool) {
	i, ok := slices.BinarySearchFunc(r.members, id, func(s seat, id string) int { return cmp.Compare(s.id, id) })
	if !ok {
		return seat{}, false
	}
	return r.members[i], true
}

func (s seat) has(tp TopicPartition) bool {
	return slices.Contains(s.own, tp) || slices.Contains(s.revoking, tp)
}

// readRoster reads a group's state: one trip, and one more where its members are not peers. A group without members, or that is not there, is an
// empty roster. So is one whose members were not peers and are gone; if they are not, that is ErrInconsistentProtocol.
func readRoster(ctx context.Context, log *eventlog.Log, group string) (roster, error) {
	kv, err := log.Get(ctx, StateKey(group))
	if err != nil {
		return roster{}, fmt.Errorf("read the group's state: %w (%w)", ErrUnavailable, err)
	}
	r := roster{version: kv.Version}
	if kv.Version == 0 {
		return r, nil
	}
	var s storedState
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return r, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	r.generation = s.Generation
	if len(s.Members) > 0 && s.ProtocolType != peerProtocol {
		sign, err := log.Get(ctx, ownerKey(group))
		if err != nil {
			return roster{}, fmt.Errorf("read the sign of the group's coordinator: %w (%w)", ErrUnavailable, err)
		}
		silent := silence(kv, sign)
		if !hasLapsed(log, silent, s) {
			return r, fmt.Errorf("group %q: %w: it has %d members of type %q, which do not meet in the store. Stop them, or choose another group; "+
				"if they are gone already, try again when nobody has coordinated them for %v, which is %v now",
				group, ErrInconsistentProtocol, len(s.Members), s.ProtocolType, s.longestSession(), silent.Round(time.Millisecond))
		}
		r.lapsed = &sign
		return r, nil
	}
	for _, m := range s.Members {
		seat, err := m.seat()
		if err != nil {
			return r, fmt.Errorf("key %q: member %q: %w", kv.Key, m.ID, err)
		}
		r.members = append(r.members, seat)
	}
	slices.SortFunc(r.members, bySeatID)
	return r, nil
}

func bySeatID(a, b seat) int { return cmp.Compare(a.id, b.id) }

// seat reads a stored member that is a peer.
func (m storedMember) seat() (seat, error) {
	s := seat{id: m.ID, names: make(map[eventlog.TopicID]string),
		about: storedPeer{Client: m.ClientID, Host: m.ClientHost, Topics: m.Topics, SessionMS: m.SessionMS}}
	for _, h := range m.Holds {
		id, err := hex.DecodeString(h.ID)
		if err != nil || len(id) != len(eventlog.TopicID{}) {
			return s, fmt.Errorf("topic %q has the id %q: not a topic id", h.Topic, h.ID)
		}
		topic := eventlog.TopicID(id)
		s.names[topic] = h.Topic
		for _, n := range h.Own {
			s.own = append(s.own, TopicPartition{topic, n})
		}
		for _, n := range h.Revoking {
			s.revoking = append(s.revoking, TopicPartition{topic, n})
		}
	}
	slices.SortFunc(s.own, byPlace)
	slices.SortFunc(s.revoking, byPlace)
	return s, nil
}

// reads is what a peer has, by the names of its topics.
func (m storedMember) reads() reading {
	r := reading{}
	for _, h := range m.Holds {
		r[h.Topic] = append(append(r[h.Topic], h.Own...), h.Revoking...)
	}
	return r
}

func byPlace(a, b TopicPartition) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// encode is the value of the group's state.
func (r roster) encode(group string) ([]byte, error) {
	s := storedState{Generation: r.generation}
	if len(r.members) > 0 {
		s.ProtocolType, s.Protocol = peerProtocol, peerProtocol
	}
	for _, m := range r.members {
		s.Members = append(s.Members, storedMember{
			ID: m.id, ClientID: m.about.Client, ClientHost: m.about.Host, SessionMS: m.about.SessionMS, Topics: m.about.Topics, Holds: m.shares(),
		})
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", group, err)
	}
	if len(value) > stateMax {
		return nil, fmt.Errorf("group %q: %w: its state of %d members would take %d bytes, more than %d",
			group, ErrTooLarge, len(r.members), len(value), stateMax)
	}
	return value, nil
}

// shares spells out what a peer has, by the names of its topics.
func (s seat) shares() []storedShare {
	byTopic := make(map[eventlog.TopicID]*storedShare)
	share := func(tp TopicPartition) *storedShare {
		if byTopic[tp.Topic] == nil {
			byTopic[tp.Topic] = &storedShare{Topic: s.names[tp.Topic], ID: tp.Topic.String()}
		}
		return byTopic[tp.Topic]
	}
	for _, tp := range s.own {
		share(tp).Own = append(share(tp).Own, tp.Partition)
	}
	for _, tp := range s.revoking {
		share(tp).Revoking = append(share(tp).Revoking, tp.Partition)
	}
	var out []storedShare
	for _, sh := range byTopic {
		out = append(out, *sh)
	}
	slices.SortFunc(out, func(a, b storedShare) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID)) })
	return out
}

// sign is a peer's sign of life as the store has it.
type sign struct {
	id      string
	version eventlog.Version
	age     time.Duration
	about   storedPeer
}

func (s sign) session() time.Duration { return time.Duration(s.about.SessionMS) * time.Millisecond }

func (s sign) dead() bool { return s.age > s.session() }

// rollCall reads the signs of life of a group's peers: one trip per thousand.
func rollCall(ctx context.Context, log *eventlog.Log, group string) (signs []sign, err error) {
	err = log.ListAll(ctx, memberKeysOf(group), func(kv eventlog.KeyValue) error {
		_, s, err := parseSign(kv)
		signs = append(signs, s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("signs of life in group %q: %w", group, err)
	}
	return signs, nil
}

func parseSign(kv eventlog.KeyValue) (group string, s sign, err error) {
	s = sign{version: kv.Version, age: kv.Age}
	escaped, peer, _ := strings.Cut(strings.TrimPrefix(kv.Key, memberPrefix), "/")
	group, err = url.PathUnescape(escaped)
	id, err2 := url.PathUnescape(peer)
	s.id = id
	if err = cmp.Or(err, err2, json.Unmarshal(kv.Value, &s.about)); err != nil {
		return "", s, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	return group, s, nil
}
