package group

import "fmt"

const (
	// memberOverhead is about how many bytes a member, or a member id given out, takes besides its
	// protocols.
	memberOverhead = 512
	// protocolOverhead is about how many bytes a protocol takes besides its name and metadata.
	protocolOverhead = 64
	// hostShare limits a client host to half of what the other hosts leave: half of the bytes of
	// limits.MembersBytes, for its members, the member ids that it asked for and the assignments
	// that its leaders sent, and half of the groups of limits.GroupsMax, for those with members of
	// it. So there is always space for one more host, however much a few hosts take.
	hostShare = 2
)

// usage is memory that groups' members take.
type usage struct{ groups, bytes int }

// recount counts the group's members again, if they have changed. The group is locked.
func (g *group) recount() {
	if !g.uncounted {
		return
	}
	g.uncounted = false
	now := make(map[string]usage)
	add := func(host string, groups, bytes int) {
		u := now[host]
		now[host] = usage{max(u.groups, groups), u.bytes + bytes}
	}
	leader := g.members[g.leader]
	for _, m := range g.members {
		add(m.clientHost, 1, memory(m.bytes(), m.protocols))
		if leader != nil {
			add(leader.clientHost, 0, len(m.assignment)) // the leader brought it
		} else {
			add(m.clientHost, 0, len(m.assignment))
		}
	}
	for _, p := range g.pending {
		add(p.host, 0, memberOverhead)
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
func (c *Coordinator) account(g *group, now map[string]usage) {
	for host, u := range g.counted {
		c.count(host, usage{-u.groups, -u.bytes})
	}
	if g.counted = now; c.groups[g.name] != g {
		g.counted = nil // it was forgotten meanwhile
	}
	for host, u := range g.counted {
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

// reserve counts what a host is about to add to the group, or refuses it. The next recount replaces
// the count. After a refusal, which is COORDINATOR_NOT_AVAILABLE, Kafka's clients wait and try
// again. GROUP_MAX_SIZE_REACHED would end the consumer, although other groups are the cause
// (AbstractCoordinator.JoinGroupResponseHandler, SyncGroupResponseHandler).
func (g *group) reserve(verb, clientHost string, need usage) error {
	g.recount()
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.counted[clientHost].groups > 0 {
		need.groups = 0
	}
	host := c.hosts[clientHost]
	bytesMost := (c.cfg.limits.MembersBytes - (c.bytes - host.bytes)) / hostShare
	groupsMost := max(1, (c.cfg.limits.GroupsMax-(c.memberships-host.groups))/hostShare)
	refuse := func(what string, n, most int) error {
		return fmt.Errorf("%s group %q: %w: %s %d, the limit is %d: stop members, or run more processes", verb, g.name, ErrUnavailable, what, n, most)
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
	if g.counted == nil {
		g.counted = make(map[string]usage)
	}
	u := g.counted[clientHost]
	g.counted[clientHost] = usage{u.groups + need.groups, u.bytes + need.bytes}
	c.count(clientHost, need)
	g.uncounted = true
	return nil
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
