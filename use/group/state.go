package group

import (
	"cmp"
	"context"
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
)

const (
	statePrefix  = "group/state/"
	offsetPrefix = "group/offset/"

	// nameMax bounds a group's name in bytes. Escaped, it must still fit into an index of every
	// store.
	nameMax = 512
	// stateMax bounds a group's state in the store.
	stateMax = 8 << 20
	// loadTimeout bounds the wait for the store when a group is read.
	loadTimeout = 10 * time.Second
	// saveTimeout bounds the wait for the store when something of a group is written, and its waits
	// for others' commits (patience). Kafka's offsets.commit.timeout.ms is 5 s by default, too.
	saveTimeout = 5 * time.Second
)

// patience returns how long a write of a group is waited for: longer on a store that takes a commit
// only once in a while.
func patience(log *eventlog.Log) time.Duration { return saveTimeout + log.CommitEvery() }

// KeyRules say where the keys of groups live on a store made of shards: those of one group on one
// shard.
func KeyRules() (rules []eventlog.KeyRule) {
	for _, prefix := range []string{statePrefix, offsetPrefix, startPrefix, ownerPrefix, memberPrefix, configPrefix} {
		rules = append(rules, eventlog.KeyRule{Prefix: prefix, By: eventlog.ByFirst})
	}
	return rules
}

// StateKey is the key of a group's state.
func StateKey(group string) string { return statePrefix + url.PathEscape(group) }

func offsetKeysOf(group string) string { return offsetPrefix + url.PathEscape(group) + "/" }
func nameOfStateKey(key string) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(key, statePrefix))
}

// OffsetKey is the key of one committed offset.
func OffsetKey(group string, tp TopicPartition) string {
	if tp.Partition == allPartitions {
		return startKeysOf(group) + tp.Topic.String()
	}
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

// storedState is the value of a group's state key: the last generation that got its assignment, or
// none.
type storedState struct {
	Generation   int32          `json:"generation"`
	ProtocolType string         `json:"protocol_type,omitempty"`
	Protocol     string         `json:"protocol,omitempty"`
	Leader       string         `json:"leader,omitempty"`
	Members      []storedMember `json:"members,omitempty"`
	// MadeBy is the client that made the group, for whom it counts (see census): an API key's id or
	// a user. "": nobody is known.
	MadeBy string `json:"made_by,omitempty"`
	// EmptyMS is how long the group had been without members when this was written: with the write,
	// the key's age starts again.
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

	// In addition, of a member that has a host.
	HostedBy string `json:"hosted_by,omitempty"`
	Classic  bool   `json:"classic,omitempty"` // it speaks the classic protocol
	Away     bool   `json:"away,omitempty"`
	Rack     string `json:"rack,omitempty"`
	Assignor string `json:"assignor,omitempty"`
	Pattern  string `json:"pattern,omitempty"`
}

// storedOffset is the value of one committed offset.
type storedOffset struct {
	Topic       string          `json:"topic"`
	Partition   int32           `json:"partition"`
	Offset      eventlog.Offset `json:"offset"`
	LeaderEpoch int32           `json:"leader_epoch"`
	Metadata    string          `json:"metadata,omitempty"`
}

// save writes the group's state in one store call, while the group is locked. With members it
// writes the owner's heartbeat too. An expired group is stored as empty, unless its members sent a
// heartbeat meanwhile. After ErrUnavailable nothing has changed; after ErrMoved the group is no
// longer owned, and memory holds nothing of it.
func (g *group) save(ctx context.Context) error {
	finish, err := g.saveLater(ctx)
	if err != nil {
		return err
	}
	return finish()
}

// saveLater is save that only submits the write. The function that it returns waits for it; the
// group stays locked until then.
func (g *group) saveLater(ctx context.Context) (finish func() error, err error) {
	if g.state == PreparingRebalance || g.peers {
		panic(fmt.Sprintf("group %q: state %s is to be stored, of peers: %v, generation %d", g.name, g.state, g.peers, g.generation))
	}
	value, err := g.encode()
	made := g.version == 0
	if err == nil && made {
		err = g.c.census.admit(g.name, g.maker)
	}
	if err != nil {
		return nil, err
	}
	next := g.version.Next()
	e := eventlog.Entry{Puts: []eventlog.Put{{Key: StateKey(g.name), Version: next, Value: value}}}
	if g.expired {
		e.Checks = append(e.Checks, eventlog.Check{Key: ownerKey(g.name), Version: g.heartbeatVersion})
	}
	g.forgetGhosts(&e)
	signed := g.heartbeatVersion
	switch {
	case len(g.members) > 0:
		e.Puts = append(e.Puts, g.heartbeat())
	case g.heartbeatVersion > 0:
		e.Puts, g.heartbeatVersion = append(e.Puts, eventlog.Put{Key: ownerKey(g.name), Version: g.heartbeatVersion + 1}), 0
	}
	asked, written := time.Now(), g.writeLater(ctx, e)
	return func() error {
		if err := written(); err != nil {
			if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTooLarge) {
				g.heartbeatVersion = signed
			}
			return err
		}
		g.version, g.moved, g.expired, g.deadPeers = next, next, false, nil
		g.knownAsOf(asked)
		if made {
			g.c.census.count(g.maker, 1)
		}
		return nil
	}, nil
}

// forgetGhosts adds to an entry the deletion of dead peers' heartbeat keys. The entry is refused if
// one of them sent another heartbeat meanwhile.
func (g *group) forgetGhosts(e *eventlog.Entry) {
	for _, s := range g.deadPeers {
		key := memberKey(g.name, s.id)
		e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: s.version})
		e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: s.version + 1})
	}
}

// writeLater submits an entry, which counts if the group's state is still as it is known here. The
// function that it returns waits for it. The time that the store takes extends the members'
// sessions, since their heartbeats wait for the lock meanwhile.
func (g *group) writeLater(ctx context.Context, e eventlog.Entry) (finish func() error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(g.c.log))
	start := time.Now()
	e.Checks = append(e.Checks, eventlog.Check{Key: StateKey(g.name), Version: g.version})
	ticket := g.c.log.Submit(ctx, e)
	return func() error {
		defer cancel()
		_, err := ticket.Wait(ctx)
		for _, m := range g.members {
			if !m.deadline.IsZero() {
				m.deadline = m.deadline.Add(time.Since(start))
			}
		}
		if err != nil {
			return g.refused(err)
		}
		return nil
	}
}

// refused handles the error of an entry: if the group in the store may have changed, it drops what
// memory holds of it.
func (g *group) refused(err error) error {
	switch {
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
		return fmt.Errorf("group %q: %w (%w)", g.name, ErrUnavailable, err)
	case errors.Is(err, eventlog.ErrTooLarge):
		return fmt.Errorf("group %q: %w (%w)", g.name, ErrTooLarge, err)
	}
	// Overtaken by another process, or of unknown outcome: what the store holds decides.
	g.c.logger.Info("reading the group again from the store", "group", g.name, "err", err)
	g.reset()
	g.overtaken = errors.Is(err, eventlog.ErrStale)
	if errors.Is(err, eventlog.ErrUnsure) {
		g.moved = 0 // the entry may still be in flight; after the next version it is refused
	}
	return fmt.Errorf("group %q: %w (%w)", g.name, ErrMoved, err)
}

func (g *group) encode() ([]byte, error) {
	s := storedState{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MadeBy: g.maker}
	if g.leaderless {
		s.Leader = "" // until they have joined again: the member of that name does not know that it leads
	}
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
		return nil, fmt.Errorf("group %q: %w: its state of %d members would take %d bytes, the limit is %d",
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
