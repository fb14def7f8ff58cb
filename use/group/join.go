package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	clientIDMax = 255 // bytes of a client's id that go into its member id
	reasonMax   = 255 // bytes of a client's reason that go into the log

	// pendingMax is how long a member id that was given out can be used for a first join. Clients
	// join with it immediately.
	pendingMax = time.Minute

	// protocolsMax is how many protocols a member may offer. Each join compares them with those of
	// all members; Kafka's clients offer one to three.
	protocolsMax = 100
)

type (
	// Join is a member's request to be in the next generation. The group keeps its byte slices: the
	// caller must not change them.
	Join struct {
		Group        string
		Member       string // empty for one that has no member id yet
		Instance     string // empty for a dynamic member; otherwise it is a static member (KIP-345)
		ClientID     string
		ClientHost   string
		Session      time.Duration
		Rebalance    time.Duration // 0: the session timeout
		ProtocolType string
		Protocols    []Protocol // the preferred one first
		Reason       string     // why it joins (KIP-800), for the log
		By           string     // who asks: an API key's id or a user, for whom a new group counts; "": nobody who is known

		NeedsMemberID  bool // its client understands ErrMemberIDRequired (KIP-394, version 4)
		SkipsAssigning bool // its client understands SkipAssignment (KIP-814, version 9)
	}

	// Protocol is a way to assign partitions, and a member's metadata for it.
	Protocol struct {
		Name     string
		Metadata []byte
	}

	// Joined is the answer to a Join: a member's role in a generation.
	Joined struct {
		Member         string
		Leader         string
		Generation     int32
		ProtocolType   string
		Protocol       string
		Members        []JoinedMember // for the leader: all of them
		SkipAssignment bool
	}

	// JoinedMember is one member as the leader sees it.
	JoinedMember struct {
		Member, Instance string
		Metadata         []byte
	}
)

// Join waits until the group's next generation begins, and returns the member's role in it. With
// ErrMemberIDRequired, Joined.Member is the id to join with.
func (c *Coordinator) Join(ctx context.Context, r Join) (Joined, error) {
	if err := c.mayChange(r.Group); err != nil {
		return Joined{Member: r.Member}, err
	}
	if r.Rebalance <= 0 {
		r.Rebalance = r.Session
	}
	if err := c.check(r); err != nil {
		return Joined{Member: r.Member}, err
	}
	if h := c.hostIfAny(r.Group); h != nil && h.hasMembers() {
		return c.joinHost(ctx, r)
	}
	var g *group
	var wait joinWait
	joined := Joined{Member: r.Member}
	err := retryMoved(ctx, func() (err error) {
		if g, err = c.lock(ctx, r.Group, owned); err != nil {
			return err
		}
		defer g.unlock()
		wait, joined, err = g.join(ctx, r)
		return err
	})
	if errors.Is(err, errHosted) {
		return c.joinHost(ctx, r)
	}
	if wait == nil {
		return joined, err
	}
	select {
	case a := <-wait:
		return a.value, a.err
	case <-ctx.Done():
		g.abandonJoin(wait)
		return Joined{Member: r.Member}, fmt.Errorf("join group %q: %w (%w)", r.Group, ErrUnavailable, context.Cause(ctx))
	}
}

func (c *Coordinator) check(r Join) error {
	if r.Group == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidGroup)
	}
	if least, most := c.cfg.SessionMin, c.cfg.SessionMax; r.Session < least || r.Session > most {
		return fmt.Errorf("join group %q: %w: %v is outside [%v, %v]", r.Group, ErrInvalidSession, r.Session, least, most)
	}
	if n := len(r.Protocols); n > protocolsMax {
		return fmt.Errorf("join group %q: %w: the member offers %d protocols, the limit is %d", r.Group, ErrTooLarge, n, protocolsMax)
	}
	if n := r.bytes(); n > protocolBytes {
		return fmt.Errorf("join group %q: %w: the member's protocols have %d bytes, the limit is %d", r.Group, ErrTooLarge, n, protocolBytes)
	}
	return nil
}

// bytes estimates the memory that the member will take.
func (r Join) bytes() int {
	n := len(r.Instance) + len(r.ClientID) + len(r.ClientHost) + len(r.ProtocolType)
	for _, p := range r.Protocols {
		n += len(p.Name) + len(p.Metadata)
	}
	return n
}

func (r Join) reason() string {
	if r.Reason == "" {
		return "no reason given"
	}
	return r.Reason[:min(len(r.Reason), reasonMax)]
}

type joinWait = chan answer[Joined]

// join handles a new or a known member's join. It returns an answer, or a channel that will deliver
// it.
func (g *group) join(ctx context.Context, r Join) (joinWait, Joined, error) {
	refuse := func(err error) (joinWait, Joined, error) {
		return nil, Joined{Member: r.Member}, fmt.Errorf("join group %q as %q: %w", g.name, r.Member, err)
	}
	m := g.members[r.Member]
	switch {
	case g.peers:
		return nil, Joined{}, errHosted
	case !g.hasRoom(r, m):
		if m != nil {
			g.remove(m)
			g.tryCompleteJoin(ctx)
		}
		return refuse(fmt.Errorf("%w: it has %d members, which is the limit", ErrFull, g.c.cfg.limits.MembersMax))
	case !g.supports(r):
		return refuse(fmt.Errorf("%w: the member has the type %q and offers %v", ErrInconsistentProtocol, r.ProtocolType, names(r.Protocols)))
	case r.Member == "" && r.Instance == "" && r.NeedsMemberID:
		return g.giveID(r)
	}
	var old *member // the member that it replaces, or that it is; nil: none
	switch {
	case r.Member == "":
		old = g.members[g.instances[r.Instance]]
	case g.pending[r.Member] == pendingID{}:
		var err error
		if old, err = g.find(r.Member, r.Instance); err != nil {
			return refuse(err)
		}
	}
	if err := g.affords(r, old); err != nil {
		return nil, Joined{Member: r.Member}, err
	}
	if g.version == 0 && len(g.members) == 0 {
		g.maker = r.By
		if err := g.c.census.admit(g.name, g.maker); err != nil {
			return refuse(err)
		}
	}
	// The join is accepted. Only now does this process become the coordinator.
	if err := g.own(ctx); err != nil {
		return nil, Joined{Member: r.Member}, err
	}
	switch {
	case old == nil:
		return g.admit(ctx, r)
	case r.Member == "":
		return g.joinBack(ctx, r, old)
	}
	return g.rejoin(ctx, r, old)
}

// hasRoom reports whether the limits allow the join. In the join phase only members that wait in a
// join count: so a group that is over its limit can go on, without the members that come back last.
func (g *group) hasRoom(r Join, m *member) bool {
	count := len(g.members)
	switch {
	case g.state == Empty:
		return r.Member != "" || len(g.pending) < g.c.cfg.limits.MembersMax
	case g.state == PreparingRebalance:
		if m != nil && m.joining != nil {
			return true
		}
		count = g.joining()
	case m != nil:
		return true
	}
	return count < g.c.cfg.limits.MembersMax && (r.Member != "" || len(g.pending) < g.c.cfg.limits.MembersMax)
}

// supports reports whether the group can have a protocol that this member and all others offer.
func (g *group) supports(r Join) bool {
	if r.ProtocolType == "" || len(r.Protocols) == 0 {
		return false
	}
	if len(g.members) == 0 {
		return true
	}
	common := make(map[string]bool)
	for _, p := range r.Protocols {
		common[p.Name] = true
	}
	for _, m := range g.members {
		offered := make(map[string]bool)
		for _, p := range m.protocols {
			offered[p.Name] = common[p.Name]
		}
		common = offered
	}
	return r.ProtocolType == g.protocolType && slices.Contains(slices.Collect(maps.Values(common)), true)
}

// giveID gives a new dynamic member its id before it joins: otherwise each of its retries would
// leave a member behind that no client uses (KIP-394).
func (g *group) giveID(r Join) (joinWait, Joined, error) {
	if err := g.reserve("join", r.ClientHost, usage{bytes: memberOverhead}); err != nil {
		return nil, Joined{}, err
	}
	id, until := memberID(r.ClientID), time.Now().Add(min(r.Session, pendingMax))
	g.pending[id] = pendingID{until, r.ClientHost}
	g.wakeBy(until)
	return nil, Joined{Member: id}, ErrMemberIDRequired
}

// admit adds a member and begins a rebalance.
func (g *group) admit(ctx context.Context, r Join) (joinWait, Joined, error) {
	id := r.Member
	if id == "" {
		id = memberID(cmp.Or(r.Instance, r.ClientID))
	}
	m := &member{id: id, instance: r.Instance, clientID: r.ClientID, clientHost: r.ClientHost, fresh: true}
	if len(g.members) == 0 {
		g.protocolType = r.ProtocolType
	}
	g.add(m)
	g.grew = g.initial
	wait := g.wait(m, r)
	g.touchFor(m, newMemberJoinTimeout)
	g.changed(ctx, "member "+id+" joins: "+r.reason())
	return wait, Joined{}, nil
}

// rejoin handles a known member's join.
func (g *group) rejoin(ctx context.Context, r Join, m *member) (joinWait, Joined, error) {
	same := sameProtocols(m.protocols, r.Protocols)
	switch {
	case g.state == CompletingRebalance && same, // the answer to its last join got lost
		g.state == Stable && same && g.leader != m.id: // it repeats its join to be sure
		g.touch(m)
		return nil, g.joined(m), nil
	}
	// The leader asks for a rebalance by joining again, for example because a topic has new
	// partitions.
	wait := g.wait(m, r)
	g.changed(ctx, "member "+m.id+" rejoins: "+r.reason())
	return wait, Joined{}, nil
}

// joinBack lets a static member that restarted replace its old member under a new member id: the
// process that was the old member is fenced (KIP-345). A stable group does not rebalance, unless
// its protocol changes.
func (g *group) joinBack(ctx context.Context, r Join, old *member) (joinWait, Joined, error) {
	g.answerJoin(old, Joined{Member: old.id}, ErrFencedInstance)
	g.answerSync(old, Synced{}, ErrFencedInstance)
	leader := g.leader
	m := &member{id: memberID(r.Instance), instance: r.Instance, clientID: r.ClientID, clientHost: r.ClientHost,
		assignment: old.assignment, synced: old.synced}
	g.replace(old, m)
	wait := g.wait(m, r)
	g.touch(m)
	if g.state != Stable || g.choose() != g.protocol {
		g.changed(ctx, "static member "+r.Instance+" rejoins: "+r.reason())
		return wait, Joined{}, nil
	}
	if err := g.save(ctx); err != nil {
		if g.members[m.id] == m { // nothing has changed in the store
			m.joining = nil
			g.replace(m, old)
		}
		return nil, Joined{}, err
	}
	m.joining = nil
	j := g.joined(m)
	if r.SkipsAssigning {
		j.SkipAssignment = j.Leader == m.id
	} else {
		// If the client knew that it leads, it would assign again although nothing changed. So the
		// answer names the leader's old id, and the client follows.
		j.Leader, j.Members = leader, nil
	}
	return nil, j, nil
}

// replace replaces member a by b.
func (g *group) replace(a, b *member) {
	leads := g.leader == a.id
	delete(g.members, a.id)
	g.add(b)
	if leads {
		g.leader = b.id
	}
}

// wait updates the member from its request, and makes it wait for the next generation.
func (g *group) wait(m *member, r Join) joinWait {
	g.answerJoin(m, Joined{Member: m.id}, ErrRebalancing) // an earlier join of the same member
	g.uncounted = true
	m.protocols, m.session, m.rebalance = r.Protocols, r.Session, r.Rebalance
	m.joining = make(joinWait, 1)
	return m.joining
}

// affords checks that the group's members, with one of them replaced, stay within GroupBytes, and
// the members of all groups within their limits.
func (g *group) affords(r Join, instead *member) error {
	total := r.bytes()
	for _, m := range g.members {
		if m != instead {
			total += m.bytes()
		}
	}
	if total > g.c.cfg.limits.GroupBytes {
		return fmt.Errorf("join group %q: %w: the protocols of its %d members would take %d bytes, the limit is %d",
			g.name, ErrTooLarge, len(g.members), total, g.c.cfg.limits.GroupBytes)
	}
	return g.reserveMember(r, instead)
}

// changed starts a rebalance after a change among the members, or continues the running one.
func (g *group) changed(ctx context.Context, reason string) {
	if g.state == PreparingRebalance {
		g.tryCompleteJoin(ctx)
		return
	}
	g.rebalance(ctx, reason)
}

// rebalance begins the join phase.
func (g *group) rebalance(ctx context.Context, reason string) {
	g.c.logger.Info("group rebalances", "group", g.name, "generation", g.generation, "because", reason)
	if g.state == CompletingRebalance {
		for _, m := range g.members {
			m.assignment = nil
			if m.syncing != nil {
				g.answerSync(m, Synced{}, ErrRebalancing)
				g.touch(m)
			}
		}
	}
	now := time.Now()
	g.initial = g.state == Empty && g.c.cfg.InitialDelay > 0
	g.state, g.grew, g.syncBy = PreparingRebalance, false, time.Time{}
	g.joinBy = now.Add(g.rebalanceTimeout())
	if g.initial {
		g.joinLast = now.Add(max(g.rebalanceTimeout(), g.c.cfg.InitialDelay))
		g.joinBy = now.Add(g.c.cfg.InitialDelay)
	}
	g.wakeBy(g.joinBy)
	g.tryCompleteJoin(ctx)
}

func (g *group) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

func (g *group) tryCompleteJoin(ctx context.Context) {
	if g.state == PreparingRebalance && !g.initial && g.joining() == len(g.members) && len(g.pending) == 0 {
		g.completeJoin(ctx)
	}
}

func (g *group) joining() int {
	n := 0
	for _, m := range g.members {
		if m.joining != nil {
			n++
		}
	}
	return n
}

// completeJoin ends the join phase: dynamic members that did not join are removed, the others are
// the next generation.
func (g *group) completeJoin(ctx context.Context) {
	g.initial, g.joinBy = false, time.Time{}
	var leader *member
	for _, m := range g.byID() {
		if m.joining == nil && m.instance == "" {
			g.remove(m)
		} else if m.joining != nil && (leader == nil || m.id == g.leader) {
			leader = m
		}
	}
	if len(g.members) == 0 {
		g.becomeEmpty(ctx)
		return
	}
	if leader == nil { // only static members, and none has joined: wait until one joins, or all sessions end
		g.joinBy = time.Now().Add(g.rebalanceTimeout())
		g.wakeBy(g.joinBy)
		return
	}
	g.generation++
	g.leader, g.protocol, g.state = leader.id, g.choose(), CompletingRebalance
	g.c.logger.Info("group has a new generation", "group", g.name, "generation", g.generation, "members", len(g.members), "protocol", g.protocol)
	g.syncBy = time.Now().Add(g.rebalanceTimeout())
	g.wakeBy(g.syncBy)
	for _, m := range g.members {
		m.fresh, m.synced = false, false
		g.answerJoin(m, g.joined(m), nil)
		g.touch(m)
	}
}

// becomeEmpty stores that the last member is gone. If that fails, the members that the store still
// has expire when the group has been silent for a session. A group without members has no owner.
func (g *group) becomeEmpty(ctx context.Context) {
	g.generation++
	g.state, g.protocol, g.leader, g.since = Empty, "", "", time.Now()
	g.c.logger.Info("group is empty", "group", g.name, "generation", g.generation)
	if g.version == 0 { // it never had an assignment or an offset
		g.owned = false
		return
	}
	if err := g.save(ctx); err != nil {
		g.c.logger.Warn("the state of the empty group was not stored", "group", g.name, "err", err)
		g.reset() // what the store holds decides
	}
	g.owned = false
}

// choose lets each member vote for the first of its protocols that all offer, and counts. A tie
// goes to the name that sorts first, so that all brokers would choose the same.
func (g *group) choose() string {
	var offers [][]Protocol
	for _, m := range g.members {
		offers = append(offers, m.protocols)
	}
	return chooseProtocol(offers)
}

// chooseProtocol is choose for members with these protocols. "": they have none in common.
func chooseProtocol(offers [][]Protocol) string {
	offering := make(map[string]map[int]bool) // a member may name a protocol twice
	for i, offer := range offers {
		for _, p := range offer {
			if offering[p.Name] == nil {
				offering[p.Name] = make(map[int]bool)
			}
			offering[p.Name][i] = true
		}
	}
	votes := make(map[string]int)
	for _, offer := range offers {
		for _, p := range offer {
			if len(offering[p.Name]) == len(offers) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for name, n := range votes {
		if n > votes[best] || n == votes[best] && name < best {
			best = name
		}
	}
	return best
}

// joined returns a member's answer for the generation.
func (g *group) joined(m *member) Joined {
	j := Joined{Member: m.id, Leader: g.leader, Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol}
	if m.id == g.leader {
		for _, o := range g.byID() {
			j.Members = append(j.Members, JoinedMember{o.id, o.instance, o.metadata(g.protocol)})
		}
	}
	return j
}

// abandonJoin handles a client that disconnected while it waited. It may come back with its member
// id until its session ends.
func (g *group) abandonJoin(wait joinWait) {
	g.c.stay(g)
	defer g.unlock()
	for _, m := range g.members {
		if m.joining == wait {
			m.joining, m.fresh = nil, false
			g.touch(m)
		}
	}
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) bytes() int {
	return Join{Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Protocols: m.protocols}.bytes()
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(p, q Protocol) bool { return p.Name == q.Name && string(p.Metadata) == string(q.Metadata) })
}

func names(ps []Protocol) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Name)
	}
	return out
}

// memberID makes an id that nobody can guess, from what the client calls itself.
func memberID(client string) string {
	return client[:min(len(client), clientIDMax)] + "-" + rand.Text()
}
