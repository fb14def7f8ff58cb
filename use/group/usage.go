package group

import "fmt"

const (
	// memberOverhead is about how many bytes a member, or a member id given out, takes besides its
	// protocols.
	memberOverhead = 512
	// protocolOverhead is about how many bytes a protocol takes besides its name and metadata.
	protocolOverhead = 64
	// hostShare limits a client host to half of what the other hosts leave of two limits. One is
	// limits.MembersBytes, for its members, the member ids that it asked for, and the assignments
	// that its leaders sent. The other is limits.GroupsMax, for the groups in which it has members.
	// So there is always space for one more host, however much a few hosts take.
	hostShare = 2
)

// usage says in how many groups a client host has members, and how many bytes these take in memory.
type usage struct{ groups, bytes int }

// usages are what one group takes, or the host of one, by client host. It is guarded by
// Coordinator.mu.
type usages map[string]usage

func (s usages) add(clientHost string, u usage) {
	was := s[clientHost]
	s[clientHost] = usage{max(was.groups, u.groups), was.bytes + u.bytes}
}

// recount counts the group's members again, if they have changed. The group is locked.
func (g *group) recount() {
	if !g.uncounted {
		return
	}
	g.uncounted = false
	now := make(usages)
	leader := g.members[g.leader]
	for _, m := range g.members {
		now.add(m.clientHost, usage{1, memory(m.bytes(), m.protocols)})
		if leader != nil {
			now.add(leader.clientHost, usage{bytes: len(m.assignment)}) // the leader brought it
		} else {
			now.add(m.clientHost, usage{bytes: len(m.assignment)})
		}
	}
	for _, p := range g.pending {
		now.add(p.host, usage{bytes: memberOverhead})
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.account(g, now)
}

// memory estimates what a member takes, without its assignment.
func memory(bytes int, protocols []Protocol) int {
	return bytes + memberOverhead + len(protocols)*protocolOverhead
}

// account replaces what is counted for a group. c.mu is held.
func (c *Coordinator) account(g *group, now usages) {
	if c.groups[g.name] != g {
		now = nil // it was forgotten meanwhile
	}
	c.replace(&g.counted, now)
}

// replace counts now instead of what was counted. c.mu is held.
func (c *Coordinator) replace(counted *usages, now usages) {
	for host, u := range *counted {
		c.count(host, usage{-u.groups, -u.bytes})
	}
	*counted = now
	for host, u := range now {
		c.count(host, u)
	}
}

func (c *Coordinator) count(host string, u usage) {
	c.bytes += u.bytes
	c.memberships += u.groups
	h := c.hosts[host]
	h.groups, h.bytes = h.groups+u.groups, h.bytes+u.bytes
	if c.hosts[host] = h; h == (usage{}) {
		delete(c.hosts, host)
	}
}

// reserveMember reserves memory for a member that is about to join, less what its given-out id or
// the member that it replaces takes already.
func (g *group) reserveMember(r Join, instead *member) error {
	need := memory(r.bytes(), r.Protocols)
	if instead != nil && instead.clientHost == r.ClientHost {
		need -= memory(instead.bytes(), instead.protocols)
	}
	if p, given := g.pending[r.Member]; given && p.host == r.ClientHost {
		need -= memberOverhead
	}
	return g.reserve("join", r.ClientHost, usage{1, need})
}

// reserveAssignments reserves memory for a generation's assignments, which the leader brings. The
// members have no assignments yet.
func (g *group) reserveAssignments(leader *member, assignments map[string][]byte) error {
	need := 0
	for id := range g.members {
		need += len(assignments[id])
	}
	return g.reserve("sync with", leader.clientHost, usage{bytes: need})
}

// reserve counts what a client host is about to add to the group, or refuses it. The next recount
// replaces the count.
func (g *group) reserve(verb, clientHost string, need usage) error {
	g.recount()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if err := g.c.reserve(verb, g.name, &g.counted, clientHost, need); err != nil {
		return err
	}
	g.uncounted = true
	return nil
}

// reserve counts what a client host is about to add to a group, in counted and in c's sums, or
// refuses it. After a refusal, which is COORDINATOR_NOT_AVAILABLE, Kafka's clients wait and try
// again. GROUP_MAX_SIZE_REACHED would end the consumer, although other groups are the cause
// (AbstractCoordinator.JoinGroupResponseHandler, SyncGroupResponseHandler). c.mu is held.
func (c *Coordinator) reserve(verb, group string, counted *usages, clientHost string, need usage) error {
	if (*counted)[clientHost].groups > 0 {
		need.groups = 0
	}
	host := c.hosts[clientHost]
	bytesMost := (c.cfg.limits.MembersBytes - (c.bytes - host.bytes)) / hostShare
	groupsMost := max(1, (c.cfg.limits.GroupsMax-(c.memberships-host.groups))/hostShare)
	refuse := func(what string, n, most int) error {
		return fmt.Errorf("%s group %q: %w: %s %d, the limit is %d: stop members, or run more processes", verb, group, ErrUnavailable, what, n, most)
	}
	switch {
	case clientHost == "": // it is in this process
	case need.bytes > 0 && host.bytes+need.bytes > bytesMost:
		return refuse(fmt.Sprintf("bytes of members at %s would be", clientHost), host.bytes+need.bytes, bytesMost)
	case need.groups > 0 && host.groups >= groupsMost:
		return refuse(fmt.Sprintf("groups with members at %s are", clientHost), host.groups, groupsMost)
	}
	if need.bytes > 0 && !c.makeSpace(need.bytes) {
		return refuse("bytes of all groups' members would be", c.bytes+need.bytes, c.cfg.limits.MembersBytes)
	}
	if *counted == nil {
		*counted = make(usages)
	}
	u := (*counted)[clientHost]
	(*counted)[clientHost] = usage{u.groups + need.groups, u.bytes + need.bytes}
	c.count(clientHost, need)
	return nil
}

// joining is a client's join of a host's group, or its change of topics, that is on its way to the
// group's state.
type joining struct {
	offers     []Protocol // of a member of the classic protocol
	clientHost string
	bytes      int
}

// reserve counts what a client brings, or refuses it. Besides the limits of Coordinator.reserve, a
// member of the classic protocol must offer a protocol that all others offer, and their protocols
// must stay within GroupBytes. What is counted stays so until joined is called: then the client is
// a member, or is none.
func (h *host) reserve(b ConsumerBeat) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.offers != nil {
		offers := h.offers(b)
		if chooseProtocol(offers) == "" {
			return fmt.Errorf("%w: the member offers %v, of which the others offer none", ErrInconsistentProtocol, names(b.offers))
		}
		total := 0
		for _, of := range offers {
			total += Join{Protocols: of}.bytes()
		}
		if limit := h.c.cfg.limits.GroupBytes; total > limit {
			return fmt.Errorf("%w: the protocols of the group's %d members would take %d bytes, the limit is %d", ErrTooLarge, len(offers), total, limit)
		}
	}
	j := joining{b.offers, b.ClientHost, memory(b.bytes(), b.offers)}
	need := usage{1, j.bytes}
	if me, is := h.group.find(b.Member); is && h.members[b.Member] != nil && me.clientHost() == b.ClientHost {
		need.bytes -= me.memory(h.members[b.Member])
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if err := h.c.reserve("join", h.name, &h.counted, b.ClientHost, need); err != nil {
		return err
	}
	h.joining[b.Member] = j
	return nil
}

func (h *host) joined(b ConsumerBeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.joining, b.Member); len(h.joining) == 0 { // many that join at once are counted again once
		h.recount()
	}
}

// recount counts the host's members again. h.mu is held.
func (h *host) recount() {
	now := make(usages)
	for _, m := range h.group.members {
		if k := h.members[m.id]; k != nil {
			now.add(m.clientHost(), usage{1, m.memory(k)})
		}
	}
	for _, j := range h.joining {
		now.add(j.clientHost, usage{1, j.bytes})
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.replace(&h.counted, now)
}

// bytes is about what a heartbeat's client brings.
func (b ConsumerBeat) bytes() int {
	n := len(b.Member) + Join{ClientID: b.ClientID, ClientHost: b.ClientHost, Protocols: b.offers}.bytes()
	for _, s := range []*string{b.Instance, b.Rack, b.Pattern} {
		if s != nil {
			n += len(*s)
		}
	}
	for _, name := range b.Topics {
		n += len(name)
	}
	return n
}

// memory estimates what a member of a host takes, without its partitions.
func (s peerMember) memory(k *hosted) int {
	n := len(s.id) + len(s.info.Client) + len(s.info.Host) + len(s.kafka.instance) + len(s.kafka.rack) + len(s.kafka.pattern)
	for _, name := range s.info.Topics {
		n += len(name)
	}
	return memory(n+Join{Protocols: k.offers}.bytes(), k.offers)
}

// clientHost is the client's address as Kafka shows it.
func (s peerMember) clientHost() string {
	if s.info.Host == "" {
		return ""
	}
	return "/" + s.info.Host
}

// makeSpace evicts groups until there is space for so many bytes of members: the least recently
// used first. It skips groups that take no bytes, and evicts none if all would not be enough. c.mu
// is held.
func (c *Coordinator) makeSpace(bytes int) bool {
	over := c.bytes + bytes - c.cfg.limits.MembersBytes
	var evicted []*group
	for e := c.idle.Front(); e != nil && over > 0; e = e.Next() {
		if g := e.Value.(*group); len(g.counted) > 0 {
			evicted = append(evicted, g)
			for _, u := range g.counted {
				over -= u.bytes
			}
		}
	}
	if over > 0 {
		return false
	}
	for _, g := range evicted {
		c.forget(g)
	}
	return true
}
