package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Who coordinates a group is whoever moved its version last. Looking at a group changes nothing.
//
//	not owned ── a member's request, which the group as stored accepts ──► owned      own: the version moves on, sessions begin
//	owned ── another process moved the version, or the last member left ──► not owned  refresh, renew: what memory holds is dropped
//
// An owner signs every third of the shortest session, in an entry that checks the version. So it finds out that it was overtaken, and
// the age of the sign, by the store's clock, is how long nobody has coordinated the group. A group whose sign is older than its members' longest
// session has no members any more, though the store still names them: it has lapsed.

const (
	ownerPrefix = "group/owner/"
	// renewalTimeout bounds the wait for the store when an owner signs. The group does not stand still meanwhile.
	renewalTimeout = 5 * time.Second
	// overtakenMax bounds how often a request is tried again because another process changed the group meanwhile.
	overtakenMax = 20
)

func ownerKey(group string) string { return ownerPrefix + url.PathEscape(group) }

// ownerSign is the value of an owner's sign, for people.
var ownerSign = func() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people only
	}
	value, err := json.Marshal(map[string]any{"host": host[:min(len(host), clientIDMax)], "pid": os.Getpid()})
	if err != nil {
		panic(fmt.Sprintf("host %q: %v", host, err)) // numbers and strings always encode
	}
	return value
}()

// enter takes a group's slot until leave. What memory holds then is what this process coordinates, or else what the store holds: one trip,
// and one more for a group with members. Nothing is changed.
func (c *Coordinator) enter(ctx context.Context, name string) (*group, error) {
	return c.enterUnless(ctx, name, func(g *group) bool { return g.owned })
}

// enterFresh is enter, and makes sure with a trip that a group which this process coordinates was not taken over.
func (c *Coordinator) enterFresh(ctx context.Context, name string) (*group, error) {
	return c.enterUnless(ctx, name, func(*group) bool { return false })
}

// enterResting is enterFresh, without a trip for a group that had no members when last seen: what is done to it is checked against that version.
func (c *Coordinator) enterResting(ctx context.Context, name string) (*group, error) {
	return c.enterUnless(ctx, name, func(g *group) bool { return g.version > 0 && g.rests() })
}

func (c *Coordinator) enterUnless(ctx context.Context, name string, known func(*group) bool) (*group, error) {
	g, err := c.hold(ctx, name)
	if err != nil {
		return nil, err
	}
	if !known(g) {
		if err := g.refresh(ctx); err != nil {
			g.leave()
			return nil, err
		}
	}
	return g, nil
}

// rests reports whether the store has the group without members, as memory has.
func (g *group) rests() bool { return !g.owned && !g.lapsed && !g.peers && g.state == Empty }

// again tries what another process was faster than: then nothing has happened.
func again(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if n == overtakenMax || ctx.Err() != nil || !errors.Is(err, ErrMoved) || !errors.Is(err, eventlog.ErrStale) {
			return err
		}
	}
}

// refresh reads the group from the store, unless this process coordinates it still.
func (g *group) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	kv, err := g.c.log.Get(ctx, StateKey(g.name))
	switch {
	case err != nil:
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	case g.owned && kv.Version == g.version:
		return nil
	case g.owned:
		g.c.logger.Info("another process coordinates the group now", "group", g.name)
	}
	return g.restore(ctx, kv)
}

// own makes this process the group's coordinator, from the state that refresh found. Where the store has members it moves the version on, in
// one trip, which fences whoever coordinated them; their sessions begin. Where it has none, the first assignment is checked against the version.
// After an error nothing is owned.
func (g *group) own(ctx context.Context) error {
	switch {
	case g.owned:
		return nil
	case g.peers:
		panic(fmt.Sprintf("group %q: %d peers are to be coordinated", g.name, len(g.members)))
	}
	if len(g.members) > 0 || g.lapsed {
		if err := g.save(ctx); err != nil {
			g.reset()
			if errors.Is(err, eventlog.ErrStale) {
				return err
			}
			return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
		}
	}
	g.owned = true
	for _, m := range g.members {
		g.touch(m)
	}
	return nil
}

// renew submits the owner's sign where it is due, and nil where not. Where the store has no members yet there is nobody to sign for, and the version is
// checked alone.
func (g *group) renew(ctx context.Context, now time.Time) *eventlog.Ticket {
	if !due(g.renewBy, now) {
		return nil
	}
	if !g.owned || len(g.members) == 0 {
		g.renewBy = time.Time{}
		return nil
	}
	g.renewBy = now.Add(g.shortestSession() / 3)
	e := eventlog.Entry{Checks: []eventlog.Check{{Key: StateKey(g.name), Version: g.version}}}
	if g.signed > 0 {
		e.Puts = []eventlog.Put{g.sign()}
	}
	return g.c.log.Submit(ctx, e)
}

// sign is the next sign of the owner.
func (g *group) sign() eventlog.Put {
	g.signed++
	return eventlog.Put{Key: ownerKey(g.name), Version: g.signed, Value: ownerSign}
}

// renewed tells what became of a sign that was on its way: of the life and the version it was for.
func (g *group) renewed(life int, version eventlog.Version, err error) {
	if errors.Is(err, eventlog.ErrStale) && g.life == life && g.version == version {
		_ = g.refused(err) // whoever waits is told; whoever asks next finds what the store holds
	}
}

func (g *group) shortestSession() time.Duration {
	shortest := g.c.cfg.SessionMax
	for _, m := range g.members {
		shortest = min(shortest, m.session)
	}
	return shortest
}

// restore takes the stored state over as it is. A group with members costs a trip, to see whether they are silent.
func (g *group) restore(ctx context.Context, kv eventlog.KeyValue) error {
	g.reset()
	if kv.Version == 0 {
		return nil
	}
	var s storedState
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return fmt.Errorf("load group %q: key %q: %w", g.name, kv.Key, err)
	}
	var err error
	switch {
	case len(s.Members) == 0:
		g.since = time.Now().Add(-kv.Age - time.Duration(s.EmptyMS)*time.Millisecond)
	case s.ProtocolType == peerProtocol:
		err = g.restorePeers(ctx, kv, s)
	default:
		err = g.restoreMembers(ctx, kv, s)
	}
	if err != nil {
		g.reset()
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	g.version, g.generation = kv.Version, s.Generation
	return nil
}

func (g *group) restoreMembers(ctx context.Context, kv eventlog.KeyValue, s storedState) error {
	sign, err := g.c.log.Get(ctx, ownerKey(g.name))
	if err != nil {
		return err
	}
	g.signed = sign.Version
	silent := silence(kv, sign)
	if g.c.hasLapsed(silent, s) {
		g.lapsed, g.since = true, time.Now().Add(-silent)
		return nil
	}
	g.state, g.protocolType, g.protocol, g.leader = Stable, s.ProtocolType, s.Protocol, s.Leader
	g.since = time.Now().Add(-kv.Age)
	for _, sm := range s.Members {
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

// restorePeers takes a group of peers as it is, for all to see, if one of them is alive; else it has lapsed.
func (g *group) restorePeers(ctx context.Context, kv eventlog.KeyValue, s storedState) error {
	signs, err := rollCall(ctx, g.c.log, g.name)
	if err != nil {
		return err
	}
	silent := kv.Age
	for _, sign := range signs {
		silent = min(silent, sign.age)
		if g.c.isDead(sign) {
			g.ghosts = append(g.ghosts, sign)
		} else {
			g.peers = true
		}
	}
	if !g.peers {
		g.lapsed, g.since = true, time.Now().Add(-silent)
		return nil
	}
	// Their partitions are told as a consumer's would be, so that Kafka's tools show them.
	g.state, g.protocolType, g.protocol, g.ghosts = Stable, consumerProtocol, peerProtocol, nil
	for _, sm := range s.Members {
		g.add(&member{
			id: sm.ID, clientID: sm.ClientID, clientHost: "/" + sm.ClientHost, // as Kafka shows hosts
			protocols:  []Protocol{{Name: peerProtocol, Metadata: subscriptionOf(sm.Topics)}},
			assignment: assignmentOf(sm.reads()), synced: true,
		})
	}
	return nil
}

// silence is how long nobody has coordinated the group: an owner writes the state, and signs.
func silence(state, sign eventlog.KeyValue) time.Duration {
	if sign.Version == 0 {
		return state.Age
	}
	return min(state.Age, sign.Age)
}

// longestSession is after how much silence all members are gone. One whose session is not known has the longest that there may be.
func (s storedState) longestSession() time.Duration {
	var longest time.Duration
	for _, m := range s.Members {
		session := time.Duration(m.SessionMS) * time.Millisecond
		if session <= 0 {
			session = peerSessionMax
		}
		longest = max(longest, session)
	}
	return longest
}

// hasLapsed tells whether a group that nobody has coordinated for so long has lost its members.
func (c *Coordinator) hasLapsed(silent time.Duration, s storedState) bool {
	return hasLapsed(c.log, silent, s)
}

func hasLapsed(log *eventlog.Log, silent time.Duration, s storedState) bool {
	longest := s.longestSession()
	return silent > longest && heardOut(log, longest, longest)
}

// isDead tells whether a peer is gone, and not only unheard as the store was away.
func (c *Coordinator) isDead(s sign) bool {
	return s.dead() && heardOut(c.log, s.session(), s.session()/2)
}

// heardOut reports whether those who are silent for longer than their session had time to speak up. After a time without the store, or a stop of
// this process, they have a session, and after its start as long as atStart: until then it is perhaps not their fault.
func heardOut(log *eventlog.Log, session, atStart time.Duration) bool {
	since, broken := log.Steady(session / 2)
	if broken {
		return time.Since(since) >= session
	}
	return time.Since(since) >= atStart
}

func nameOfOwnerKey(key string) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(key, ownerPrefix))
}
