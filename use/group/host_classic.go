package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Members of Kafka's classic protocol in a group of a host: the clients of a group change to the
// consumer protocol, or back, one after the other (KIP-848, online migration). The host answers the
// requests of the classic protocol as GroupMetadataManager of Apache Kafka does
// (classicGroupJoinToConsumerGroup and its siblings):
//
//	JoinGroup  a heartbeat with everything: what the member was to give up, and no longer has, is
//	           released. It waits for nobody, and nobody leads: the member's generation is its epoch
//	SyncGroup  the member's partitions
//	Heartbeat  ErrRebalancing while the member must join again (settled), for example because it
//	           has partitions to give up, or to learn of

// serverAssigned are the assignors whose members can take the partitions that weir assigns: their
// promises hold for any assignment. Members of others, such as Kafka Streams' or Connect's, need
// what their leader computes.
var serverAssigned = map[string]bool{"range": true, "roundrobin": true, "sticky": true, cooperativeAssignor: true}

// cooperativeAssignor is the one whose members keep their partitions while they join.
const cooperativeAssignor = "cooperative-sticky"

// atHost asks the host of a member, or calls coordinator. It asks the host first if there is one in
// this process, since that costs no store call. If coordinator does not know the member, but the
// store says that it has a host, this process's host takes the member over, and is asked.
func (c *Coordinator) atHost(ctx context.Context, group, member string, ask func(*host) error, coordinator func() error) error {
	if h := c.hostIfAny(group); h != nil && h.hasMembers() {
		if err := ask(h); !errors.Is(err, ErrUnknownMember) { // if the host does not know the member, the group may have changed to the classic protocol
			return err
		}
	}
	err := coordinator()
	if !errors.Is(err, ErrUnknownMember) {
		return err
	}
	h, done, _, why := c.hostKnows(ctx, group, member) // the broker that it spoke to may be gone
	switch {
	case errors.Is(why, ErrInconsistentProtocol):
		return fmt.Errorf("group %q: %w: it changed its protocol meanwhile (%v)", group, ErrMoved, why)
	case why != nil: // whether it is a member is not known
		return why
	case h == nil:
		return err
	}
	defer done()
	return ask(h)
}

// joinHost is Join for a group whose members share partitions through the store.
func (c *Coordinator) joinHost(ctx context.Context, r Join) (Joined, error) {
	joined := Joined{Member: r.Member}
	refuse := func(err error) (Joined, error) {
		return joined, fmt.Errorf("join group %q as %q: %w", r.Group, r.Member, err)
	}
	h, done, err := c.hostOf(r.Group, r.By)
	if err != nil {
		return joined, err
	}
	defer done()
	if err := h.load(ctx, r.Member, false); err != nil {
		return refuse(fmt.Errorf("%w (%v)", ErrMoved, err))
	}
	b, err := r.asBeat()
	if err != nil {
		return refuse(err)
	}
	if r.Member == "" {
		b.Member = memberID(text(r.ClientID))
		joined.Member = b.Member
		if r.Instance == "" && r.NeedsMemberID {
			return joined, ErrMemberIDRequired
		}
	}
	if err := h.admits(ctx); errors.Is(err, ErrNotConsumerGroup) {
		return refuse(fmt.Errorf("%w (%v)", ErrInconsistentProtocol, err))
	} else if err != nil {
		return refuse(err)
	}
	if err := h.reserve(b); err != nil {
		return refuse(err)
	}
	defer h.joined(b)
	err = h.grant(ctx, b)
	switch {
	case errors.Is(err, ErrInconsistentProtocol):
		return refuse(fmt.Errorf("%w: the group changed to the classic protocol meanwhile (%v)", ErrMoved, err))
	case err != nil:
		return refuse(err)
	}
	a, err := h.answer(b)
	if err != nil {
		return refuse(err)
	}
	joined.Generation, joined.ProtocolType = a.Epoch, consumerProtocol
	h.mu.Lock()
	defer h.mu.Unlock()
	joined.Protocol = h.protocolFor(b)
	return joined, nil
}

// asBeat returns a join as a heartbeat of the consumer protocol.
func (r Join) asBeat() (ConsumerBeat, error) {
	none := ""
	b := ConsumerBeat{
		Group: r.Group, Member: r.Member, Epoch: epochJoin, ClientID: r.ClientID, ClientHost: r.ClientHost, By: r.By,
		Rebalance: r.Rebalance, Pattern: &none, session: r.Session, named: r.Member != "",
	}
	if r.Instance != "" {
		b.Instance = &r.Instance
	}
	b.offers = slices.DeleteFunc(slices.Clone(r.Protocols), func(p Protocol) bool { return !serverAssigned[p.Name] })
	if r.ProtocolType != consumerProtocol || len(b.offers) == 0 {
		return b, fmt.Errorf("%w: weir assigns its partitions, so a member has the type %q and offers range, roundrobin, sticky or %s; this one has the type %q and offers %v",
			ErrInconsistentProtocol, consumerProtocol, cooperativeAssignor, r.ProtocolType, names(r.Protocols))
	}
	s, ok := readSubscription(b.offers[0].Metadata)
	if !ok {
		return b, fmt.Errorf("%w: the member's subscription of %d bytes is none of Kafka's consumer protocol", ErrInconsistentProtocol, len(b.offers[0].Metadata))
	}
	b.Topics, b.Owned = append([]string{}, s.topics...), []TopicPartition{}
	if slices.ContainsFunc(r.Protocols, func(p Protocol) bool { return p.Name != cooperativeAssignor }) {
		return b, nil // it gave up all partitions before it joined
	}
	b.ownedNames = s.owned
	for _, partitions := range b.ownedNames {
		slices.Sort(partitions)
	}
	return b, nil
}

// protocolFor is the protocol of a member's answer: one that all members of the classic protocol
// offer, as far as the host knows. "": there is none. h.mu is held.
func (h *host) protocolFor(b ConsumerBeat) string { return chooseProtocol(h.offers(b)) }

// offers lists what the members of the classic protocol offer, b's and those of joins on their way
// among them. h.mu is held.
func (h *host) offers(b ConsumerBeat) [][]Protocol {
	offers := [][]Protocol{b.offers}
	for id, k := range h.members {
		if id != b.Member && k.offers != nil {
			offers = append(offers, k.offers)
		}
	}
	for id, j := range h.joining {
		if id != b.Member && j.offers != nil {
			offers = append(offers, j.offers)
		}
	}
	return offers
}

// syncClassic is Sync for a member of this host.
func (h *host) syncClassic(r Sync) (Synced, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	me, k, err := h.classic(r.Member, r.Instance, r.Generation)
	if err != nil {
		return Synced{}, fmt.Errorf("sync with group %q as %q: %w", h.name, r.Member, err)
	}
	k.told = slices.DeleteFunc(slices.Clone(k.told), func(tp TopicPartition) bool { return !holds(me.own, tp) })
	has := reading{}
	for _, tp := range k.told {
		has[me.names[tp.Topic]] = append(has[me.names[tp.Topic]], tp.Partition)
	}
	return Synced{ProtocolType: r.ProtocolType, Protocol: r.Protocol, Assignment: assignmentOf(has)}, nil
}

// beatClassic is Heartbeat for a member of this host.
func (h *host) beatClassic(r Beat) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	me, k, err := h.classic(r.Member, r.Instance, r.Generation)
	if err != nil {
		return fmt.Errorf("heartbeat of %q in group %q: %w", r.Member, h.name, err)
	}
	if h.settled(me, k) {
		k.giveUpBy = time.Time{}
		return nil
	}
	if k.giveUpBy.IsZero() {
		k.giveUpBy = time.Now().Add(me.kafka.rebalance)
	}
	return ErrRebalancing
}

// settled reports whether a member of the classic protocol need not join again now. h.mu is held.
func (h *host) settled(me peerMember, k *hosted) bool {
	return k.offers != nil && len(me.revoking) == 0 && slices.Equal(k.told, me.own) &&
		(k.epoch == h.group.generation || !h.group.allClassic(h.id))
}

// classic finds a member of the classic protocol, notes that it is heard, and checks the instance
// id and the generation of its request. h.mu is held.
func (h *host) classic(member, instance string, generation int32) (me peerMember, k *hosted, err error) {
	if instance != "" {
		switch owner, is := h.group.instance(instance); {
		case !is:
			return me, nil, ErrUnknownMember
		case owner.id != member:
			return me, nil, ErrFencedInstance
		}
	}
	me, _ = h.group.find(member)
	k = h.member(member)
	if k == nil || !me.kafka.classic {
		return me, nil, ErrUnknownMember
	}
	k.deadline = time.Now().Add(me.session()) // it is heard, also if it cannot be answered
	switch {
	case !h.trusted():
		return me, nil, h.mistrust()
	case k.epoch == 0 && generation > 0 && generation <= h.group.generation: // another host told it that generation
		k.epoch = generation
	case generation == k.previous:
		return me, nil, ErrRebalancing
	case generation != k.epoch:
		return me, nil, fmt.Errorf("%w: %d; the member has generation %d", ErrIllegalGeneration, generation, k.epoch)
	}
	return me, k, nil
}

// leaveHost removes the leavers that are members of a host, and returns an error or nil for each.
func (c *Coordinator) leaveHost(ctx context.Context, name string, leavers []Leaver) ([]error, error) {
	h, done, err := c.hostOf(name, "")
	if err != nil {
		return nil, err
	}
	defer done()
	for _, l := range leavers {
		if err := h.load(ctx, l.Member, false); err != nil {
			return nil, fmt.Errorf("leave group %q: %w (%v)", name, ErrMoved, err)
		}
	}
	errs := make([]error, len(leavers))
	return errs, h.submit(ctx, func(members []peerMember) ([]peerMember, bool, error) {
		before := len(members)
		for i, l := range leavers {
			errs[i] = nil
			if l.Instance != "" {
				owner, is := (membership{members: members}).instance(l.Instance)
				switch {
				case !is:
					errs[i] = ErrUnknownMember
				case l.Member != "" && owner.id != l.Member:
					errs[i] = ErrFencedInstance
				}
				l.Member = owner.id
			}
			at := slices.IndexFunc(members, func(m peerMember) bool { return m.id == l.Member && m.kafka.host != "" })
			switch {
			case errs[i] != nil:
			case at < 0:
				errs[i] = ErrUnknownMember
			default:
				members = slices.Delete(members, at, at+1)
				continue
			}
			errs[i] = fmt.Errorf("leave group %q as %q: %w", name, leavers[i].Member, errs[i])
		}
		return members, len(members) < before, nil
	})
}
