package group

import (
	"context"
	"slices"
	"time"
)

// evict removes members whose session has ended, and those that did not give up a partition within
// their rebalance time-out. The caller has the turn.
func (h *host) evict(ctx context.Context) {
	now := time.Now()
	gone := make(map[string]string)
	h.mu.Lock()
	for id, k := range h.members {
		m, _ := h.group.find(id)
		switch {
		case due(k.deadline, now) && graceElapsed(h.log, m.session(), 0):
			gone[id] = "it sent no heartbeat within its session time-out"
		case due(k.giveUpBy, now) && graceElapsed(h.log, m.kafka.rebalance, 0):
			gone[id] = "it did not give up a partition, or join again, within its rebalance time-out"
		}
		k.evicted = gone[id] != ""
	}
	h.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	for id, why := range gone {
		h.logger.Info("a member of a consumer group is evicted", "member", id, "why", why)
	}
	h.wish(func(members []peerMember) ([]peerMember, bool, error) {
		before := len(members)
		members = slices.DeleteFunc(members, func(m peerMember) bool { return m.kafka.host == h.id && gone[m.id] != "" })
		return members, len(members) < before, nil
	})
	h.fulfil(ctx)
}

// expireSessions is evict for a group with a coordinator. It also drops the member ids that were
// given out, and with which nobody has joined in time.
func (g *group) expireSessions(ctx context.Context, now time.Time) {
	for id, p := range g.pending {
		if due(p.until, now) {
			delete(g.pending, id)
			g.uncounted = true
			g.tryCompleteJoin(ctx)
		}
	}
	for _, m := range g.byID() {
		if !due(m.deadline, now) || m.waits() || g.members[m.id] != m {
			continue
		}
		if grace := graceLeft(g.c.log, m.session, 0); grace > 0 {
			g.touchFor(m, grace)
			continue
		}
		g.c.logger.Info("member evicted from the group: its session timed out", "group", g.name, "member", m.id, "session", m.session)
		g.answerJoin(m, Joined{}, ErrUnknownMember)
		g.remove(m)
		g.changed(ctx, "a session timed out")
	}
}
