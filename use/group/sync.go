package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

type (
	// Sync asks for a member's assignment. The leader's Sync brings the assignments of all members.
	Sync struct {
		Group, Member, Instance string
		Generation              int32
		ProtocolType, Protocol  string            // empty: not said (before version 5)
		Assignments             map[string][]byte // by member id
	}

	// Synced is a member's assignment.
	Synced struct {
		ProtocolType, Protocol string
		Assignment             []byte
	}

	// Beat says that a member is alive.
	Beat struct {
		Group, Member, Instance string
		Generation              int32
	}

	// Leaver is a member that leaves. Without a member id, an operator removes the static member
	// Instance.
	Leaver struct {
		Member, Instance, Reason string
	}
)

// Sync waits until the leader's assignment is in the store, and returns the member's part.
func (c *Coordinator) Sync(ctx context.Context, r Sync) (Synced, error) {
	if r.Group == "" {
		return Synced{}, fmt.Errorf("%w: it is empty", ErrInvalidGroup)
	}
	if err := c.mayChange(r.Group); err != nil {
		return Synced{}, err
	}
	var g *group
	var wait chan answer[Synced]
	var synced Synced
	err := c.atHost(ctx, r.Group, r.Member, func(h *host) (err error) {
		synced, err = h.syncClassic(r)
		return err
	}, func() error {
		return retryMoved(ctx, func() (err error) {
			if g, err = c.lock(ctx, r.Group, owned); err != nil {
				return err
			}
			defer g.unlock()
			wait, synced, err = g.sync(ctx, r)
			return err
		})
	})
	if errors.Is(err, ErrLoading) {
		// As Kafka answers: the rebalance that the member was in is lost, and the member joins
		// again.
		return Synced{}, fmt.Errorf("sync with group %q: %w (%w)", r.Group, ErrRebalancing, err)
	}
	if wait == nil {
		return synced, err
	}
	select {
	case a := <-wait:
		return a.value, a.err
	case <-ctx.Done():
		g.abandonSync(wait)
		return Synced{}, fmt.Errorf("sync with group %q: %w (%w)", r.Group, ErrUnavailable, context.Cause(ctx))
	}
}

func (g *group) sync(ctx context.Context, r Sync) (chan answer[Synced], Synced, error) {
	refuse := func(err error) (chan answer[Synced], Synced, error) {
		return nil, Synced{}, fmt.Errorf("sync with group %q as %q: %w", g.name, r.Member, err)
	}
	m, err := g.find(r.Member, r.Instance)
	switch {
	case err != nil:
		return refuse(err)
	case r.Generation != g.generation:
		return refuse(fmt.Errorf("%w: %d; the group has generation %d", ErrIllegalGeneration, r.Generation, g.generation))
	case r.ProtocolType != "" && r.ProtocolType != g.protocolType, r.Protocol != "" && r.Protocol != g.protocol:
		return refuse(fmt.Errorf("%w: the member has %q %q, the group has %q %q", ErrInconsistentProtocol, r.ProtocolType, r.Protocol, g.protocolType, g.protocol))
	case g.state == PreparingRebalance:
		return refuse(ErrRebalancing)
	}
	if err := g.own(ctx); err != nil {
		return nil, Synced{}, err
	}
	if g.state == PreparingRebalance {
		return refuse(ErrRebalancing)
	}
	m.synced = true
	if g.state == Stable {
		g.clearSyncBy()
		g.touch(m)
		return nil, g.synced(m), nil
	}
	g.answerSync(m, Synced{}, ErrRebalancing) // an earlier sync of the same member
	m.syncing = make(chan answer[Synced], 1)
	wait := m.syncing
	if m.id == g.leader {
		g.assign(ctx, r.Assignments)
	}
	return wait, Synced{}, nil
}

// assign stores the leader's assignment and hands it out. Nobody learns of a generation's
// assignment before the store has it, so two generations of the same number cannot have different
// assignments.
func (g *group) assign(ctx context.Context, assignments map[string][]byte) {
	for _, m := range g.members {
		m.assignment = nil // the assignment of the generation before
	}
	g.uncounted = true
	err := g.reserveAssignments(g.members[g.leader], assignments)
	if err == nil {
		for id, m := range g.members {
			m.assignment = assignments[id]
		}
		err = g.save(ctx)
	}
	if err != nil {
		// The generation stays as it is, so that the members can ask again, unless the group was
		// reset.
		for _, m := range g.members {
			m.assignment, m.synced = nil, false
			if m.syncing != nil {
				g.answerSync(m, Synced{}, err)
				g.touch(m)
			}
		}
		return
	}
	g.state = Stable
	g.clearSyncBy()
	for _, m := range g.members {
		g.answerSync(m, g.synced(m), nil)
		g.touch(m)
	}
}

func (g *group) synced(m *member) Synced {
	return Synced{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

func (g *group) clearSyncBy() {
	for _, m := range g.members {
		if !m.synced {
			return
		}
	}
	g.syncBy = time.Time{}
}

func (g *group) abandonSync(wait chan answer[Synced]) {
	g.c.stay(g)
	defer g.unlock()
	for _, m := range g.members {
		if m.syncing == wait {
			m.syncing = nil
			g.touch(m)
		}
	}
}

// Heartbeat keeps a member's session. ErrRebalancing asks it to join again. ErrUnavailable says
// that this broker has not reached the store for the longest session of the members: another one
// may coordinate the group meanwhile. While the group is not in memory and cannot be read, every
// heartbeat is accepted, as in Kafka.
func (c *Coordinator) Heartbeat(ctx context.Context, r Beat) error {
	if r.Group == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidGroup)
	}
	if err := c.mayChange(r.Group); err != nil {
		return err
	}
	err := c.atHost(ctx, r.Group, r.Member, func(h *host) error { return h.beatClassic(r) }, func() error {
		return retryMoved(ctx, func() error {
			g, err := c.lock(ctx, r.Group, owned)
			if err != nil {
				return err
			}
			defer g.unlock()
			return g.beat(ctx, r)
		})
	})
	if errors.Is(err, ErrLoading) {
		return nil
	}
	return err
}

func (g *group) beat(ctx context.Context, r Beat) error {
	m, err := g.find(r.Member, r.Instance)
	switch {
	case err != nil:
		return fmt.Errorf("heartbeat of %q in group %q: %w", r.Member, r.Group, err)
	case r.Generation != g.generation:
		return fmt.Errorf("heartbeat of %q in group %q: %w: %d; the group has generation %d", r.Member, r.Group, ErrIllegalGeneration, r.Generation, g.generation)
	}
	if err := g.own(ctx); err != nil {
		return err
	}
	g.touch(m)
	if known := g.knownSince(); time.Since(known) > g.longestSession() { // another process may coordinate the group now
		return fmt.Errorf("heartbeat of %q in group %q: %w: this broker has not reached the store since %s", r.Member, r.Group, ErrUnavailable, known.UTC().Format(time.RFC3339))
	}
	if g.state == PreparingRebalance {
		return ErrRebalancing
	}
	return nil
}

// Leave removes members, and returns an error or nil for each.
func (c *Coordinator) Leave(ctx context.Context, name string, leavers []Leaver) ([]error, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalidGroup)
	}
	if err := c.mayChange(name); err != nil {
		return nil, err
	}
	var errs []error
	err := retryMoved(ctx, func() error {
		g, err := c.lock(ctx, name, nothing)
		if err != nil {
			return err
		}
		defer g.unlock()
		if g.hosted {
			return errHosted
		}
		errs, err = g.removeLeavers(ctx, leavers)
		return err
	})
	if errors.Is(err, errHosted) {
		return c.leaveHost(ctx, name, leavers)
	}
	return errs, err
}

func (g *group) removeLeavers(ctx context.Context, leavers []Leaver) ([]error, error) {
	if slices.ContainsFunc(leavers, func(l Leaver) bool { m, _ := g.leaver(l); return m != nil }) {
		if err := g.own(ctx); err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(leavers))
	before := len(g.members)
	for i, l := range leavers {
		errs[i] = g.removeLeaver(l)
	}
	g.overtaken = false
	if len(g.members) < before {
		g.changed(ctx, "members left")
	} else {
		g.tryCompleteJoin(ctx) // the join phase may have waited for a client that only had its member id
	}
	if g.overtaken { // another process owns the group: the store still has the members that left
		return nil, fmt.Errorf("leave group %q: %w (%w)", g.name, ErrMoved, eventlog.ErrStale)
	}
	return errs, nil
}

func (g *group) removeLeaver(l Leaver) error {
	if _, given := g.pending[l.Member]; given {
		delete(g.pending, l.Member)
		g.uncounted = true
		return nil
	}
	m, err := g.leaver(l)
	if err != nil {
		return fmt.Errorf("leave group %q as %q: %w", g.name, l.Member, err)
	}
	g.c.logger.Info("member left the group", "group", g.name, "member", m.id, "reason", l.Reason[:min(len(l.Reason), reasonMax)])
	g.answerJoin(m, Joined{}, ErrUnknownMember)
	g.answerSync(m, Synced{}, ErrUnknownMember)
	g.remove(m)
	return nil
}

// leaver finds the member that leaves.
func (g *group) leaver(l Leaver) (*member, error) {
	if l.Member == "" {
		l.Member = g.instances[l.Instance]
	}
	return g.find(l.Member, l.Instance)
}
