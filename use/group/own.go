package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// The coordinator of a group is the process that wrote its state last. Reading a group changes
// nothing.
//
//	not owned ── request of a valid member ──► owned                                   own: increments the version, starts sessions
//	owned ── another process changed the version, or the last member left ──► not owned  refresh, renew: drop what memory holds
//
// The owner writes a heartbeat key (group/owner/…) three times in the shortest session timeout and
// checks the state's version: so it learns that another process took over. When the key is older
// than the longest session, by the store's clock, all members have expired.

const (
	ownerPrefix = "group/owner/"
	// retriesMax bounds the retries of a request while other processes change the group.
	retriesMax = 20
)

func ownerKey(group string) string { return ownerPrefix + url.PathEscape(group) }

// ownerInfo is the value of the owner's heartbeat key: host and process id, for operators to read.
var ownerInfo = func() []byte {
	value, err := json.Marshal(map[string]any{"host": ownerHost(), "pid": os.Getpid()})
	if err != nil {
		panic(fmt.Sprintf("host %q: %v", ownerHost(), err)) // numbers and strings always encode
	}
	return value
}()

// ownerHost is the name of this machine, for people.
var ownerHost = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host[:min(len(host), clientIDMax)]
})

// A trust reports whether the group in memory may be used as it is, without reading it from the
// store again.
type trust func(*group) bool

var (
	// nothing: the group is always read.
	nothing trust = func(*group) bool { return false }
	// owned: this process owns the group, until a write finds that another process took it over.
	owned trust = func(g *group) bool { return g.owned }
	// knownEmpty: the group was empty in the store when it was last read. The write that follows
	// checks that it still has the same version.
	knownEmpty trust = func(g *group) bool { return g.version > 0 && g.seenEmpty() }
)

// lock locks a group until unlock, and loads it from the store unless what is known is trusted: one
// store call, two for a group with members, three if some of them have a host. It writes nothing.
func (c *Coordinator) lock(ctx context.Context, name string, trusted trust) (*group, error) {
	g, err := c.hold(ctx, name)
	if err != nil {
		return nil, err
	}
	if !trusted(g) {
		if err := g.refresh(ctx); err != nil {
			g.unlock()
			return nil, err
		}
	}
	return g, nil
}

// seenEmpty reports whether the group was empty in the store when it was last read.
func (g *group) seenEmpty() bool { return !g.owned && !g.expired && !g.peers && g.state == Empty }

// retryMoved repeats try while another process changes the group first; a try that fails for this
// reason has changed nothing.
func retryMoved(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if n == retriesMax || ctx.Err() != nil || !errors.Is(err, ErrMoved) || !errors.Is(err, eventlog.ErrStale) {
			return err
		}
	}
}

// refresh reloads the group from the store, unless its version shows that this process still owns
// it.
func (g *group) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	asked := time.Now()
	kv, err := g.c.log.Get(ctx, StateKey(g.name))
	if err != nil {
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	if !g.owned || kv.Version != g.version {
		if g.owned {
			g.c.logger.Info("another process coordinates the group now", "group", g.name)
		}
		if err := g.restore(ctx, kv); err != nil {
			return err
		}
	}
	g.knownAsOf(asked)
	return nil
}

// knownSince returns a time at which the store had what this process knows of the group. Other
// processes may have changed the group since then.
func (g *group) knownSince() time.Time {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.asOf
}

func (g *group) knownAsOf(asked time.Time) {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.asOf = asked
}

// own makes this process the group's coordinator, from the state that refresh loaded. If the group
// has members, own increments the group's version, which fences the previous owner (one store
// call). An empty group is claimed by its first assignment. On error the group is not owned.
func (g *group) own(ctx context.Context) error {
	switch {
	case g.owned:
		return nil
	case g.peers:
		panic(fmt.Sprintf("group %q: own called for a group of %d peers, which have no coordinator", g.name, len(g.members)))
	}
	if len(g.members) > 0 || g.expired {
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
	if g.leaderless {
		g.leaderless = false
		g.rebalance(ctx, "its members were of a group of the consumer protocol, which nobody leads")
	}
	return nil
}

// renew submits the owner's heartbeat if it is due, otherwise it returns nil. Until the group's
// members are stored there is no heartbeat key, and only the version is checked.
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
	if g.heartbeatVersion > 0 {
		e.Puts = []eventlog.Put{g.heartbeat()}
	}
	return g.c.log.SubmitUpkeep(ctx, e)
}

// heartbeat returns the put of the owner's next heartbeat.
func (g *group) heartbeat() eventlog.Put {
	g.heartbeatVersion++
	return eventlog.Put{Key: ownerKey(g.name), Version: g.heartbeatVersion, Value: ownerInfo}
}

// heartbeatDone handles the outcome of a heartbeat. If the store refused it, another process owns
// the group now. The outcome does not count if the group was reset since (life), or has another
// version than when the heartbeat was sent.
func (g *group) heartbeatDone(life int, version eventlog.Version, asked time.Time, err error) {
	if err == nil && g.life == life {
		g.knownAsOf(asked)
	}
	if errors.Is(err, eventlog.ErrStale) && g.life == life && g.version == version {
		_ = g.refused(err) // waiting requests fail; the next request reloads the group
	}
}

func (g *group) longestSession() (longest time.Duration) {
	for _, m := range g.members {
		longest = max(longest, m.session)
	}
	return longest
}

func (g *group) shortestSession() time.Duration {
	shortest := sessionMax
	for _, m := range g.members {
		shortest = min(shortest, m.session)
	}
	return shortest
}

// restore sets the group from its stored state. For a group with members it also reads the
// heartbeats: one store call, or two if some members have a host.
func (g *group) restore(ctx context.Context, kv eventlog.KeyValue) error {
	g.reset()
	l, err := parseState(g.name, kv)
	if err != nil {
		return err
	}
	s, err := g.c.signsOf(ctx, l)
	if err != nil {
		return fmt.Errorf("load group %q: %w (%w)", g.name, ErrLoading, err)
	}
	g.adopt(l, s)
	return nil
}

// adopt sets the group from its stored state and the heartbeats of its members.
func (g *group) adopt(l loaded, s signs) {
	g.reset()
	kv := l.kv
	switch {
	case kv.Version == 0:
		return
	case len(l.state.Members) == 0:
		if !ofPeers(l.state.ProtocolType) {
			g.protocolType = l.state.ProtocolType // as in Kafka; members of another type may still join
		}
		g.since = time.Now().Add(-kv.Age - time.Duration(l.state.EmptyMS)*time.Millisecond)
	case ofPeers(l.state.ProtocolType):
		g.adoptPeers(kv, l.state, s.peers[g.name])
		g.heartbeatVersion = s.owners[g.name].Version // see hostedProtocol
	default:
		g.adoptMembers(kv, l.state, s.owners[g.name], s.asked)
	}
	g.version, g.generation, g.maker = kv.Version, l.state.Generation, l.state.MadeBy
}

func (g *group) adoptMembers(kv eventlog.KeyValue, s storedState, beat eventlog.KeyValue, asked time.Time) {
	g.heartbeatVersion = beat.Version
	silent := silence(kv, beat, asked, g.c.silentFor)
	if g.c.allExpired(silent, s) {
		g.expired, g.since = true, time.Now().Add(-silent)
		return
	}
	g.state, g.protocolType, g.protocol, g.leader, g.leaderless = Stable, s.ProtocolType, s.Protocol, s.Leader, s.Leader == ""
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
}

// adoptPeers sets a group of peers so that it can be listed. If no peer is alive, all members have
// expired.
func (g *group) adoptPeers(kv eventlog.KeyValue, s storedState, beats []heartbeat) {
	silent := kv.Age
	for _, beat := range beats {
		silent = min(silent, beat.age)
		if g.c.isDead(beat) {
			g.deadPeers = append(g.deadPeers, beat)
		} else {
			g.peers = true
		}
	}
	if !g.peers {
		g.expired, g.since = true, time.Now().Add(-silent)
		return
	}
	// Assignments are encoded as a Kafka consumer's, so that Kafka's tools show them.
	g.state, g.protocolType, g.protocol, g.deadPeers = s.peerState(), consumerProtocol, peerProtocol, nil
	for _, sm := range s.Members {
		g.hosted = g.hosted || sm.HostedBy != ""
		g.add(&member{
			id: sm.ID, instance: sm.Instance, clientID: sm.ClientID, clientHost: "/" + sm.ClientHost, // as Kafka shows hosts
			protocols:  []Protocol{{Name: peerProtocol, Metadata: subscriptionOf(sm.Topics)}},
			assignment: assignmentOf(sm.reads()), synced: true,
		})
	}
}

// silence returns the time since an owner last wrote the group's state or heartbeat. asked is when
// the reading of the heartbeat began. The state may have been read earlier: each write of the state
// of a group with members writes a heartbeat, too.
func silence(state, beat eventlog.KeyValue, asked time.Time, of silentFor) time.Duration {
	if beat.Version == 0 {
		return state.Age
	}
	return min(of(state, asked), of(beat, asked))
}

// silentFor is eventlog.Silence.Of.
type silentFor func(kv eventlog.KeyValue, asked time.Time) time.Duration

// silentFor knows all that this process has read of groups. It may be called concurrently.
func (c *Coordinator) silentFor(kv eventlog.KeyValue, asked time.Time) time.Duration {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	return c.silent.Of(kv, asked)
}

// forgetSilent forgets the keys that two sweeps have not found.
func (c *Coordinator) forgetSilent() {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.silent.Forget(time.Now().Add(-2 * c.cfg.limits.ExpireEvery))
}

// longestSession returns the longest session timeout of the members; after that much silence all
// have expired. An unknown one counts as peerSessionMax.
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

// allExpired reports whether all members have expired after this much silence.
func (c *Coordinator) allExpired(silent time.Duration, s storedState) bool {
	return allExpired(c.log, silent, s)
}

func allExpired(log *eventlog.Log, silent time.Duration, s storedState) bool {
	longest := s.longestSession()
	return silent > longest && graceElapsed(log, longest, longest)
}

// isDead reports whether a peer's session has expired, and not only because the store was
// unavailable.
func (c *Coordinator) isDead(s heartbeat) bool {
	return s.dead() && graceElapsed(c.log, s.session(), s.session()/2)
}

// graceElapsed reports whether silent members may be expired.
func graceElapsed(log *eventlog.Log, session, atStart time.Duration) bool {
	return graceLeft(log, session, atStart) <= 0
}

// graceLeft returns how much longer silent members are not expired, because their heartbeats may
// have been lost: after an outage of the store, or after this process was suspended, they get the
// time of one more session; after the start of this process they get the time atStart.
func graceLeft(log *eventlog.Log, session, atStart time.Duration) time.Duration {
	since, broken := log.Steady(session / 2)
	if broken {
		return session - time.Since(since)
	}
	return atStart - time.Since(since)
}

func nameOfOwnerKey(key string) (string, error) {
	return url.PathUnescape(strings.TrimPrefix(key, ownerPrefix))
}
