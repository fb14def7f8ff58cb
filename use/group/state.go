package group

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	statePrefix  = "group/state/"
	offsetPrefix = "group/offset/"

	// nameMax bounds a group's name in bytes. Escaped, it must still fit into an index of every store.
	nameMax = 512
	// stateMax bounds a group's state in the store.
	stateMax = 8 << 20
	// loadTimeout bounds the wait for the store when a group is read.
	loadTimeout = 10 * time.Second
	// saveTimeout bounds the wait for the store when a group's state changes. The group stands still meanwhile.
	saveTimeout = 5 * time.Second
)

// StateKey is the key of a group's state.
func StateKey(group string) string { return statePrefix + url.PathEscape(group) }

func offsetKeysOf(group string) string { return offsetPrefix + url.PathEscape(group) + "/" }
func nameOfStateKey(key string) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(key, statePrefix))
}

// OffsetKey is the key of one committed offset.
func OffsetKey(group string, tp TopicPartition) string {
	return offsetKeysOf(group) + tp.Topic.String() + "/" + strconv.Itoa(int(tp.Partition))
}

// parseOffset reads one committed offset, and the name of its group.
func parseOffset(kv eventlog.KeyValue) (group string, o stored, err error) {
	var s storedOffset
	parts := strings.Split(strings.TrimPrefix(kv.Key, offsetPrefix), "/")
	if len(parts) != 3 {
		return "", o, fmt.Errorf("key %q: not a group, a topic id and a partition", kv.Key)
	}
	group, err = url.PathUnescape(parts[0])
	id, err2 := hex.DecodeString(parts[1])
	n, err3 := strconv.ParseInt(parts[2], 10, 32)
	if err = cmp.Or(err, err2, err3); err != nil || len(id) != len(o.Topic) {
		return "", o, fmt.Errorf("key %q: not a group, a topic id and a partition (%w)", kv.Key, err)
	}
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return "", o, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	o.TopicPartition = TopicPartition{eventlog.TopicID(id), int32(n)}
	o.Name, o.Offset, o.LeaderEpoch, o.Metadata, o.age = s.Topic, s.Offset, s.LeaderEpoch, s.Metadata, kv.Age
	return group, o, nil
}

// storedState is the value of a group's state key: the last generation that got its assignment, or none.
type storedState struct {
	Generation   int32          `json:"generation"`
	ProtocolType string         `json:"protocol_type,omitempty"`
	Protocol     string         `json:"protocol,omitempty"`
	Leader       string         `json:"leader,omitempty"`
	Members      []storedMember `json:"members,omitempty"`
	// EmptyMS is how long the group had been without members when this was written: the key's age starts again.
	EmptyMS int64 `json:"empty_ms,omitempty"`
}

type storedMember struct {
	ID           string  `json:"id"`
	Instance     string  `json:"instance,omitempty"`
	ClientID     string  `json:"client_id"`
	ClientHost   string  `json:"client_host"`
	SessionMS    int64   `json:"session_ms"`
	RebalanceMS  int64   `json:"rebalance_ms"`
	Partitions   reading `json:"partitions,omitempty"` // Assignment, spelled out for people
	Subscription []byte  `json:"subscription,omitempty"`
	Assignment   []byte  `json:"assignment,omitempty"`

	// Of a peer, instead of Subscription and Assignment.
	Topics []string      `json:"topics,omitempty"`
	Holds  []storedShare `json:"holds,omitempty"`
}

// storedOffset is the value of one committed offset.
type storedOffset struct {
	Topic       string          `json:"topic"`
	Partition   int32           `json:"partition"`
	Offset      eventlog.Offset `json:"offset"`
	LeaderEpoch int32           `json:"leader_epoch"`
	Metadata    string          `json:"metadata,omitempty"`
}

// own makes this process the group's coordinator: it moves the version forward, which fences everyone who wrote at
// the old one, this process's own entries of unknown outcome included. Two trips. A group that is not in the store has nothing to
// fence, and costs one. A group of living peers is read, and not owned.
func (g *group) own(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	g.reset()
	kv, err := g.c.log.Get(ctx, StateKey(g.name))
	if err != nil {
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	if kv.Version > 0 {
		if err := g.restore(ctx, kv); err != nil || g.peers {
			return err
		}
		if err := g.save(ctx); err != nil {
			g.reset()
			return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
		}
	}
	g.owned = true
	return nil
}

// isFresh reports whether the group is owned and nobody wrote to it since: one trip.
func (g *group) isFresh(ctx context.Context) (bool, error) {
	if !g.owned {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	kv, err := g.c.log.Get(ctx, StateKey(g.name))
	if err != nil {
		return false, fmt.Errorf("group %q: %w (%w)", g.name, ErrLoading, err)
	}
	return kv.Version == g.version, nil
}

// peek reads the group for the eyes of people and metrics, without becoming its coordinator.
func (g *group) peek(ctx context.Context, kv eventlog.KeyValue) error {
	g.reset()
	return g.restore(ctx, kv)
}

// restore takes the stored state over. Sessions of its members begin anew. One of peers costs a trip, to see who is alive.
func (g *group) restore(ctx context.Context, kv eventlog.KeyValue) error {
	var s storedState
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return fmt.Errorf("load group %q: key %q: %w", g.name, kv.Key, err)
	}
	if s.ProtocolType == peerProtocol {
		return g.restorePeers(ctx, kv, s)
	}
	now := time.Now()
	g.version, g.generation = kv.Version, s.Generation
	g.protocolType, g.protocol, g.leader = s.ProtocolType, s.Protocol, s.Leader
	g.state = Empty
	g.since = now.Add(-kv.Age - time.Duration(s.EmptyMS)*time.Millisecond)
	for _, sm := range s.Members {
		g.state = Stable
		g.add(&member{
			id: sm.ID, instance: sm.Instance, clientID: sm.ClientID, clientHost: sm.ClientHost,
			session:    time.Duration(sm.SessionMS) * time.Millisecond,
			rebalance:  time.Duration(sm.RebalanceMS) * time.Millisecond,
			protocols:  []Protocol{{Name: s.Protocol, Metadata: sm.Subscription}},
			assignment: sm.Assignment, synced: true,
		})
	}
	return nil
}

// restorePeers takes a group of peers as it is, for all to see, if one of them is alive; else it has no members.
func (g *group) restorePeers(ctx context.Context, kv eventlog.KeyValue, s storedState) error {
	signs, err := rollCall(ctx, g.c.log, g.name)
	if err != nil {
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	for _, sign := range signs {
		if sign.dead() {
			g.ghosts = append(g.ghosts, sign)
		} else {
			g.peers = true
		}
	}
	g.version, g.generation, g.state, g.since = kv.Version, s.Generation, Empty, time.Now()
	if !g.peers {
		g.lapsed = true
		return nil
	}
	// Their partitions are told as a consumer's would be, so that Kafka's tools show them.
	g.state, g.protocolType, g.protocol = Stable, consumerProtocol, peerProtocol
	for _, sm := range s.Members {
		g.add(&member{
			id: sm.ID, clientID: sm.ClientID, clientHost: "/" + sm.ClientHost, // as Kafka shows hosts
			protocols:  []Protocol{{Name: peerProtocol, Metadata: subscriptionOf(sm.Topics)}},
			assignment: assignmentOf(sm.reads()), synced: true,
		})
	}
	return nil
}

// forgetGhosts are the puts that forget dead peers' signs of life. One that is not dead, only slow, finds its own gone.
func (g *group) forgetGhosts() (puts []eventlog.Put) {
	for _, s := range g.ghosts {
		puts = append(puts, eventlog.Put{Key: memberKey(g.name, s.id), Version: s.version + 1})
	}
	return puts
}

// save writes the group's state in one trip, while the group stands still. After ErrUnavailable nothing has changed.
// After ErrMoved the group is no longer owned, and forgets all it knew.
func (g *group) save(ctx context.Context) error {
	if g.state == PreparingRebalance {
		panic(fmt.Sprintf("group %q: state of an unfinished round is to be stored, generation %d", g.name, g.generation))
	}
	value, err := g.encode()
	if err != nil {
		return err
	}
	next := g.version + 1
	if g.version == 0 {
		next = firstVersion()
	}
	puts := []eventlog.Put{{Key: StateKey(g.name), Version: next, Value: value}}
	if err := g.write(ctx, append(puts, g.forgetGhosts()...)...); err != nil {
		return err
	}
	g.version, g.lapsed, g.ghosts = next, false, nil
	return nil
}

// firstVersion is where a group begins. One that is deleted and made again must not come by the versions of its former life: who was
// overtaken may still hold one.
func firstVersion() eventlog.Version { return 1 + eventlog.Version(rand.Int64N(1<<53)) }

// write puts keys if the group's state is still ours. Time that the store takes is not counted against the
// members, whose heartbeats waited outside.
func (g *group) write(ctx context.Context, puts ...eventlog.Put) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	_, err := g.c.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: StateKey(g.name), Version: g.version}},
		Puts:   puts,
	})
	if err != nil {
		return g.refused(err)
	}
	for _, m := range g.members {
		g.touch(m)
	}
	return nil
}

// refused says what an entry that the log did not take means for the group.
func (g *group) refused(err error) error {
	switch {
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
		return fmt.Errorf("group %q: %w (%w)", g.name, ErrUnavailable, err)
	case errors.Is(err, eventlog.ErrTooLarge):
		return fmt.Errorf("group %q: %w (%w)", g.name, ErrTooLarge, err)
	}
	// Overtaken by another broker, or of unknown outcome: what the store holds decides. Owning the group again
	// fences whatever may still be on its way.
	g.c.logger.Info("group is read again from the store", "group", g.name, "because", err)
	g.reset()
	return fmt.Errorf("group %q: %w (%w)", g.name, ErrMoved, err)
}

func (g *group) encode() ([]byte, error) {
	s := storedState{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader}
	if g.state == Empty && !g.since.IsZero() {
		s.EmptyMS = time.Since(g.since).Milliseconds()
	}
	for _, m := range g.byID() {
		sm := storedMember{
			ID: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost,
			SessionMS: m.session.Milliseconds(), RebalanceMS: m.rebalance.Milliseconds(),
			Subscription: m.metadata(g.protocol), Assignment: m.assignment,
		}
		if g.protocolType == consumerProtocol {
			sm.Partitions = assigned(m.assignment)
		}
		s.Members = append(s.Members, sm)
	}
	value, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", g.name, err)
	}
	if len(value) > stateMax {
		return nil, fmt.Errorf("group %q: %w: its state of %d members would take %d bytes, more than %d",
			g.name, ErrTooLarge, len(s.Members), len(value), stateMax)
	}
	return value, nil
}

// byID lists the members in the order of their ids.
func (g *group) byID() []*member {
	ms := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		ms = append(ms, m)
	}
	slices.SortFunc(ms, func(a, b *member) int { return cmp.Compare(a.id, b.id) })
	return ms
}
