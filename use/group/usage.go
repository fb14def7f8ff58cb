package group

import "fmt"

const (
	// memberOverhead is about what a member, or a member id given out, takes beside its protocols.
	memberOverhead = 512
	// hostShare: members of one client host have at most this part of Config.MembersBytes, and are in at most this part of
	// Config.GroupsMax groups. So no single host locks all others out.
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
	for _, m := range g.members {
		u := now[m.clientHost]
		now[m.clientHost] = usage{1, u.bytes + m.bytes() + len(m.assignment) + memberOverhead}
	}
	if n := len(g.pending); n > 0 {
		u := now[""]
		now[""] = usage{u.groups, u.bytes + n*memberOverhead} // their hosts are not known
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.account(g, now)
}

// account replaces what is counted of a group. c.mu is held.
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
	h := c.hosts[host]
	h.groups, h.bytes = h.groups+u.groups, h.bytes+u.bytes
	if c.hosts[host] = h; h == (usage{}) {
		delete(c.hosts, host)
	}
}

// reserve counts a member that is about to join, until the next recount, or refuses it. The error is one that Kafka's clients wait and try again
// after: COORDINATOR_NOT_AVAILABLE. GROUP_MAX_SIZE_REACHED ends a consumer, and other groups are not its fault
// (AbstractCoordinator.JoinGroupResponseHandler).
func (g *group) reserve(r Join, instead *member) error {
	g.recount()
	need := usage{bytes: r.bytes() + memberOverhead}
	if instead != nil && instead.clientHost == r.ClientHost {
		need.bytes -= instead.bytes() + memberOverhead
	}
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.counted[r.ClientHost].groups == 0 {
		need.groups = 1
	}
	for c.bytes+need.bytes > c.cfg.MembersBytes && c.evict() {
	}
	host := c.hosts[r.ClientHost]
	refuse := func(what string, n, most int) error {
		return fmt.Errorf("join group %q: %w: %s %d, and the limit is %d: let sessions end, or run more processes", g.name, ErrUnavailable, what, n, most)
	}
	switch {
	case need.bytes > 0 && c.bytes+need.bytes > c.cfg.MembersBytes:
		return refuse("bytes of all groups' members would be", c.bytes+need.bytes, c.cfg.MembersBytes)
	case r.ClientHost == "": // it is in this process
	case need.bytes > 0 && host.bytes+need.bytes > c.cfg.MembersBytes/hostShare:
		return refuse(fmt.Sprintf("bytes of members at %s would be", r.ClientHost), host.bytes+need.bytes, c.cfg.MembersBytes/hostShare)
	case need.groups > 0 && host.groups >= max(1, c.cfg.GroupsMax/hostShare):
		return refuse(fmt.Sprintf("groups with members at %s are", r.ClientHost), host.groups, max(1, c.cfg.GroupsMax/hostShare))
	}
	if g.counted == nil {
		g.counted = make(map[string]usage)
	}
	u := g.counted[r.ClientHost]
	g.counted[r.ClientHost] = usage{u.groups + need.groups, u.bytes + need.bytes}
	c.count(r.ClientHost, need)
	g.uncounted = true
	return nil
}
