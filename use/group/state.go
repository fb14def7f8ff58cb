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

func stateKey(group string) string     { return statePrefix + url.PathEscape(group) }
func offsetKeysOf(group string) string { return offsetPrefix + url.PathEscape(group) + "/" }
func nameOfStateKey(key string) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(key, statePrefix))
}

func offsetKey(group string, tp TopicPartition) string {
	return offsetKeysOf(group) + tp.Topic.String() + "/" + strconv.Itoa(int(tp.Partition))
}

func parseOffsetKey(group, key string) (TopicPartition, error) {
	var tp TopicPartition
	topic, partition, ok := strings.Cut(strings.TrimPrefix(key, offsetKeysOf(group)), "/")
	n, err := strconv.ParseInt(partition, 10, 32)
	id, err2 := hex.DecodeString(topic)
	if !ok || err != nil || err2 != nil || len(id) != len(tp.Topic) {
		return tp, fmt.Errorf("key %q: not a topic id and a partition", key)
	}
	tp.Topic, tp.Partition = eventlog.TopicID(id), int32(n)
	return tp, nil
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
	Subscription []byte  `json:"subscription"`
	Assignment   []byte  `json:"assignment"`
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
// the old one, this process's own entries of unknown outcome included, and only then reads the offsets. Two
// trips, and one per thousand offsets. A group that is not in the store has nothing to fence, and costs one trip.
func (g *group) own(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	g.reset()
	kv, err := g.c.log.Get(ctx, stateKey(g.name))
	if err != nil {
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	if kv.Version > 0 {
		if err := g.restore(kv); err != nil {
			return err
		}
		if err := g.save(ctx); err != nil {
			g.reset()
			return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
		}
		if err := g.loadOffsets(ctx); err != nil {
			g.reset()
			return err
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
	kv, err := g.c.log.Get(ctx, stateKey(g.name))
	if err != nil {
		return false, fmt.Errorf("group %q: %w (%w)", g.name, ErrLoading, err)
	}
	return kv.Version == g.version, nil
}

// peek reads the group for the eyes of people and metrics, without becoming its coordinator.
func (g *group) peek(ctx context.Context, kv eventlog.KeyValue) error {
	g.reset()
	if err := g.restore(kv); err != nil {
		return err
	}
	if err := g.loadOffsets(ctx); err != nil {
		g.reset()
		return err
	}
	return nil
}

// restore takes the stored state over. Sessions of its members begin anew.
func (g *group) restore(kv eventlog.KeyValue) error {
	var s storedState
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return fmt.Errorf("load group %q: key %q: %w", g.name, kv.Key, err)
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

func (g *group) loadOffsets(ctx context.Context) error {
	err := g.c.log.ListAll(ctx, offsetKeysOf(g.name), func(kv eventlog.KeyValue) error {
		tp, err := parseOffsetKey(g.name, kv.Key)
		if err != nil {
			return err
		}
		var s storedOffset
		if err := json.Unmarshal(kv.Value, &s); err != nil {
			return fmt.Errorf("key %q: %w", kv.Key, err)
		}
		g.offsets[tp] = &committed{at: time.Now().Add(-kv.Age), Committed: Committed{
			TopicPartition: tp, Name: s.Topic, Offset: s.Offset, LeaderEpoch: s.LeaderEpoch, Metadata: s.Metadata,
		}}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load offsets of group %q: %w (%w)", g.name, ErrLoading, err)
	}
	return nil
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
		// A group that is deleted and made again must not come by the versions of its former life: an
		// overtaken broker may still hold one.
		next = 1 + eventlog.Version(rand.Int64N(1<<53))
	}
	if err := g.write(ctx, eventlog.Put{Key: stateKey(g.name), Version: next, Value: value}); err != nil {
		return err
	}
	g.version = next
	return nil
}

// write puts keys if the group's state is still ours. Time that the store takes is not counted against the
// members, whose heartbeats waited outside.
func (g *group) write(ctx context.Context, puts ...eventlog.Put) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	_, err := g.c.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: stateKey(g.name), Version: g.version}},
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
