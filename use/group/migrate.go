package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// A group of the classic protocol becomes a group of a host with the first member of another kind:
// a member of the consumer protocol, or a peer. It becomes a group of the classic protocol again
// when the last such member has left (Kafka's group.consumer.migration.policy=bidirectional, the
// default). Both are one write of the group's state. Members keep their ids, their partitions and
// their generation: a member that had a partition may go on committing it.

// upgrade makes the members of a classic group members of this host. ErrNotConsumerGroup: they
// cannot be.
func (h *host) upgrade(ctx context.Context) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.giveTurn()
	g, err := h.c.hold(ctx, h.name) // this process may be its coordinator
	if err != nil {
		return err
	}
	defer g.unlock()
	kv, err := h.log.Get(ctx, StateKey(h.name))
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	l, err := parseState(h.name, kv)
	if err != nil {
		return err
	}
	if len(l.state.Members) == 0 || ofPeers(l.state.ProtocolType) {
		return nil // somebody else did it
	}
	if g.owned && g.version == kv.Version { // members have left since the state was written
		l.state.Members = slices.DeleteFunc(l.state.Members, func(m storedMember) bool { return g.members[m.ID] == nil })
	}
	// The members may read a topic, or partitions of it, of which this process has not heard: what
	// it does not know of they would lose, and others would get it while they read it.
	if err := h.log.RefreshTopics(ctx); err != nil {
		return fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	r, err := h.fromClassic(l)
	if err != nil {
		return fmt.Errorf("group %q: %w: it is of the classic protocol, and cannot change to the consumer protocol: %w", h.name, ErrNotConsumerGroup, err)
	}
	sent := time.Now()
	next, err := h.write(ctx, r, eventlog.Entry{Puts: h.beatPuts()})
	switch {
	case errors.Is(err, eventlog.ErrStale), errors.Is(err, eventlog.ErrUnsure): // the member tries again
		return fmt.Errorf("group %q: %w: it changed meanwhile (%w)", h.name, ErrUnavailable, err)
	case err != nil:
		return err
	}
	h.logger.Info("a group changes from the classic to the consumer protocol", "members", len(next.members), "generation", next.generation)
	h.adopt(next)
	h.mu.Lock()
	h.beaten = sent
	for _, m := range l.state.Members {
		me, _ := next.find(m.ID)
		k := h.members[m.ID]
		k.epoch, k.told, k.offers = l.state.Generation, me.own, []Protocol{{l.state.Protocol, m.Subscription}}
	}
	h.mu.Unlock()
	g.reset()
	return nil
}

// upgrade is host.upgrade for a peer that joins. The group's brokers find that they no longer
// coordinate it, and adopt its members.
func (c *Coordinator) upgrade(ctx context.Context, group, by string) error {
	h, done, err := c.hostOf(group, by)
	if err != nil {
		return err
	}
	defer done()
	for range peerTries { // another process may do it at the same time
		if err = h.upgrade(ctx); !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
			break
		}
	}
	return err
}

// fromClassic returns a classic group's state as that of a group of this host.
func (h *host) fromClassic(l loaded) (r membership, err error) {
	r = membership{version: l.kv.Version, generation: l.state.Generation, maker: l.state.MadeBy}
	if l.state.ProtocolType != consumerProtocol || !serverAssigned[l.state.Protocol] {
		return r, fmt.Errorf("its members have the type %q and the assignor %q, whose leader assigns the partitions", l.state.ProtocolType, l.state.Protocol)
	}
	topics := make(map[string]eventlog.Topic)
	for _, t := range h.log.Topics() {
		topics[t.Name] = t
	}
	taken := make(map[TopicPartition]bool)
	for _, sm := range l.state.Members {
		s, ok := readSubscription(sm.Subscription)
		if !ok {
			return r, fmt.Errorf("the subscription of member %q is none of Kafka's consumer protocol", sm.ID)
		}
		m := peerMember{
			id: sm.ID, names: make(map[eventlog.TopicID]string), since: make(map[TopicPartition]int32),
			info:  storedPeer{Client: text(sm.ClientID), Host: hostOfClient(sm.ClientHost), Topics: slices.Compact(slices.Sorted(slices.Values(s.topics))), SessionMS: sm.SessionMS},
			kafka: kafkaMember{host: h.id, instance: sm.Instance, classic: true, rebalance: time.Duration(sm.RebalanceMS) * time.Millisecond},
		}
		for name, partitions := range assigned(sm.Assignment) {
			t, there := topics[name]
			for _, n := range partitions {
				tp := TopicPartition{t.ID, n}
				if there && n >= 0 && int(n) < len(t.Partitions) && !taken[tp] {
					taken[tp] = true
					m.own, m.names[t.ID], m.since[tp] = append(m.own, tp), name, l.state.Generation
				}
			}
		}
		slices.SortFunc(m.own, byPlace)
		r.members = append(r.members, m)
	}
	slices.SortFunc(r.members, byMemberID)
	return r, nil
}

// allClassic reports whether all members are of the classic protocol, and of one host.
func (r membership) allClassic(host string) bool {
	return len(r.members) > 0 && !slices.ContainsFunc(r.members, func(m peerMember) bool { return !m.kafka.classic || m.kafka.host != host })
}

// downgrade makes a group whose members are all of the classic protocol a classic group, once each
// has joined the group's last generation and has nothing to give up: so none of them loses its
// generation. Nobody leads the group: whoever coordinates it first lets its members join again. The
// caller has the turn.
func (h *host) downgrade(ctx context.Context) error {
	h.mu.Lock()
	r := h.group
	back := &group{c: h.c, name: h.name, state: Stable, generation: r.generation, protocolType: consumerProtocol, maker: r.maker, members: make(map[string]*member)}
	var offers [][]Protocol
	settled := r.allClassic(h.id)
	for _, m := range r.members {
		k := h.members[m.id]
		if !settled || k == nil || !h.settled(m, k) {
			settled = false
			break
		}
		offers = append(offers, k.offers)
		back.members[m.id] = &member{
			id: m.id, instance: m.kafka.instance, clientID: m.info.Client, clientHost: "/" + m.info.Host, protocols: k.offers,
			session: m.session(), rebalance: m.kafka.rebalance, assignment: assignmentOf(m.reading()), synced: true,
		}
	}
	h.mu.Unlock()
	if back.protocol = chooseProtocol(offers); !settled || back.protocol == "" {
		return nil
	}
	value, err := back.encode()
	if err != nil {
		return err
	}
	_, err = h.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: StateKey(h.name), Version: r.version}},
		Puts: []eventlog.Put{
			{Key: StateKey(h.name), Version: r.version.Next(), Value: value},
			{Key: ownerKey(h.name), Version: eventlog.Version(0).Next(), Value: ownerInfo},
			{Key: memberKey(h.name, h.id), Version: h.lastBeat + 1},
		},
	})
	if err != nil {
		return err // the next look finds what the store has
	}
	h.logger.Info("a group changes from the consumer to the classic protocol", "members", len(back.members), "generation", back.generation)
	h.adopt(membership{})
	return nil
}

func (s peerMember) reading() reading {
	out := reading{}
	for _, tp := range s.own {
		out[s.names[tp.Topic]] = append(out[s.names[tp.Topic]], tp.Partition)
	}
	return out
}
