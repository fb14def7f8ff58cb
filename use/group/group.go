package group

import (
	"container/list"
	"context"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// State is the state of a group, named as in Kafka.
//
//	          a member joins                    all joined, or time is up
//	Empty ──────────────────► PreparingRebalance ────────────────────────► CompletingRebalance
//	  ▲                          ▲      │                                          │
//	  └──── all members left ────┼──────┘            the leader's assignment is in │
//	                             │                                                 ▼
//	                             └──── a member came, left, or changed ──────── Stable
type State string

// The states of a group. Dead is the state of a group that does not exist.
const (
	Empty               State = "Empty"
	PreparingRebalance  State = "PreparingRebalance"
	CompletingRebalance State = "CompletingRebalance"
	Stable              State = "Stable"
	Dead                State = "Dead"
	// Reconciling: members of the consumer protocol still have partitions that others wait for.
	Reconciling State = "Reconciling"
)

// newMemberJoinTimeout bounds how long a member that never got an answer may wait in a join: it
// does not know its member id, so it cannot send heartbeats. As in Kafka.
const newMemberJoinTimeout = 5 * time.Minute

// tickMin is the delay of a group's timer when work is overdue, so that work that stays overdue
// does not keep the processor busy.
const tickMin = time.Millisecond

// group is one group in memory: as this process coordinates it, or as it was last read from the
// store. Its fields may be used by whoever holds its lock (slot), except those guarded by c.mu.
type group struct {
	c     *Coordinator
	name  string
	users int           // guarded by c.mu
	idle  *list.Element // its element in c.idle, or nil; guarded by c.mu
	slot  chan struct{} // the group's lock: holds one value while nobody has locked it

	owned            bool             // this process is its coordinator: it knows of no other process that wrote the state since version
	peers            bool             // its members are peers or have a host, and coordinate it themselves
	hosted           bool             // it has members with a host
	expired          bool             // all members have expired, but the store still has them
	deadPeers        []heartbeat      // expired peers whose heartbeat keys are still in the store
	version          eventlog.Version // of its state in the store; 0: not there
	heartbeatVersion eventlog.Version // of its owner's heartbeat key in the store; 0: there is none
	moved            eventlog.Version // the last version that this process wrote. A group without members is saved before a commit if moved differs from version (ready)
	life             int              // counts resets, so that a late answer of the store is recognised

	overtaken bool // the last write was refused, because another process wrote first
	state     State
	since     time.Time // when the state was written; of an empty group: when it became empty; of an expired one: its last heartbeat

	generation   int32
	protocolType string
	protocol     string
	leader       string
	leaderless   bool   // nobody has led it since it was of the consumer protocol (migrate.go)
	maker        string // see storedState.MadeBy
	members      map[string]*member
	instances    map[string]string    // group instance id to member id
	pending      map[string]pendingID // member ids given out (KIP-394)

	uncounted bool      // members or pending have changed since recount
	asOf      time.Time // see Coordinator.AsOf; guarded by c.mu
	counted   usages    // what is counted for the group; guarded by c.mu

	initial  bool      // this rebalance fills an empty group: it waits for InitialDelay
	grew     bool      // a member came during the delay
	joinBy   time.Time // when the join phase ends, if it runs
	joinLast time.Time // the latest end of the initial delay
	syncBy   time.Time // deadline for members to fetch their assignment; zero: no member has to
	renewBy  time.Time // when the owner's next heartbeat is due; zero: none is due

	timer *time.Timer
	wake  time.Time // when timer fires; zero: it is off
}

// member is one client in a group.
type member struct {
	id, instance         string
	clientID, clientHost string
	session, rebalance   time.Duration
	protocols            []Protocol
	assignment           []byte

	deadline time.Time // when its session ends, unless it sends something
	fresh    bool      // it waits in its first join
	synced   bool      // it asked for its assignment of this generation
	joining  chan answer[Joined]
	syncing  chan answer[Synced]
}

// pendingID is a member id that nobody has joined with yet.
type pendingID struct {
	until time.Time // when it can be used for the last time
	host  string    // of the client that asked for it
}

// answer is what a waiting request gets.
type answer[T any] struct {
	value T
	err   error
}

func newGroup(c *Coordinator, name string) *group {
	g := &group{c: c, name: name, slot: make(chan struct{}, 1), pending: map[string]pendingID{}}
	g.timer = time.AfterFunc(time.Hour, g.tick)
	g.timer.Stop()
	g.reset()
	g.slot <- struct{}{}
	return g
}

// unlock unlocks a group that hold, lock or stay has locked.
func (g *group) unlock() {
	g.recount()
	g.slot <- struct{}{}
	g.c.release(g)
}

// reset drops what memory holds of the group, except the member ids that were given out here.
// Waiting requests get ErrMoved; their clients then look for the coordinator.
func (g *group) reset() {
	for _, m := range g.members {
		g.answerJoin(m, Joined{Member: m.id}, ErrMoved)
		g.answerSync(m, Synced{}, ErrMoved)
	}
	g.owned, g.version, g.state, g.since = false, 0, Empty, time.Time{}
	g.peers, g.hosted, g.expired, g.deadPeers, g.heartbeatVersion = false, false, false, nil, 0
	g.leaderless = false
	g.life++
	g.generation, g.protocolType, g.protocol, g.leader, g.maker = 0, "", "", "", ""
	g.members, g.instances = map[string]*member{}, map[string]string{}
	g.uncounted = true
	g.initial, g.grew, g.joinBy, g.joinLast, g.syncBy, g.renewBy = false, false, time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// tick does what is due. The timer may fire early, or with nothing due.
func (g *group) tick() {
	g.c.mu.Lock()
	if g.c.closed {
		g.c.mu.Unlock()
		return
	}
	g.c.use(g)
	g.c.ticks.Add(1)
	g.c.mu.Unlock()
	defer g.c.ticks.Done()

	<-g.slot
	g.wake = time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), patience(g.c.log))
	defer cancel()
	now := time.Now()
	g.expireSessions(context.Background(), now)
	g.expirePhases(context.Background(), now)
	asked := time.Now()
	life, version, renewal := g.life, g.version, g.renew(ctx, time.Now())
	for _, m := range g.members {
		if !m.waits() {
			g.wakeBy(m.deadline)
		}
	}
	for _, p := range g.pending {
		g.wakeBy(p.until)
	}
	g.wakeBy(g.joinBy)
	g.wakeBy(g.syncBy)
	g.wakeBy(g.renewBy)
	g.unlock()
	if renewal != nil {
		_, err := renewal.Wait(ctx)
		g.c.stay(g)
		g.heartbeatDone(life, version, asked, err)
		g.unlock()
	}
}

func (g *group) expirePhases(ctx context.Context, now time.Time) {
	if due(g.joinBy, now) {
		if g.initial && g.grew && now.Before(g.joinLast) {
			g.grew = false
			g.joinBy = earlier(now.Add(g.c.cfg.InitialDelay), g.joinLast)
		} else {
			g.completeJoin(ctx)
		}
	}
	if due(g.syncBy, now) {
		for _, m := range g.byID() {
			if !m.synced {
				g.c.logger.Info("member evicted from the group: it did not ask for its assignment", "group", g.name, "member", m.id)
				g.remove(m)
			}
		}
		g.syncBy = time.Time{}
		g.rebalance(ctx, "members did not ask for their assignment")
	}
}

// wakeBy makes sure that the timer fires at t or earlier.
func (g *group) wakeBy(t time.Time) {
	if t.IsZero() || !g.wake.IsZero() && !t.Before(g.wake) {
		return
	}
	g.wake = t
	in := time.Until(t)
	if in <= 0 {
		in = tickMin
	}
	g.timer.Reset(in)
}

// touch restarts a member's session, because it sent something, or because it could not send
// anything until now.
func (g *group) touch(m *member) { g.touchFor(m, m.session) }

func (g *group) touchFor(m *member, d time.Duration) {
	now := time.Now()
	m.deadline = now.Add(d)
	if next := now.Add(m.session / 3); g.renewBy.IsZero() || next.Before(g.renewBy) {
		g.renewBy = next
	}
	g.wakeBy(m.deadline)
	g.wakeBy(g.renewBy)
}

// waits reports whether the member waits for our answer: then its session does not expire. The
// session of a fresh member does, since its client may have disconnected unnoticed.
func (m *member) waits() bool { return !m.fresh && (m.joining != nil || m.syncing != nil) }

func (g *group) add(m *member) {
	g.members[m.id] = m
	g.uncounted = true
	if m.instance != "" {
		g.instances[m.instance] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	delete(g.pending, m.id)
}

func (g *group) remove(m *member) {
	delete(g.members, m.id)
	g.uncounted = true
	if m.instance != "" && g.instances[m.instance] == m.id {
		delete(g.instances, m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if rest := g.byID(); len(rest) > 0 {
			g.leader = rest[0].id
		}
	}
}

// find looks up a member and checks its instance id. The order of the checks decides which error a
// client sees; it is Kafka's.
func (g *group) find(id, instance string) (*member, error) {
	if g.peers {
		return nil, ErrUnknownMember // peers do not use a coordinator
	}
	if instance != "" {
		switch known := g.instances[instance]; known {
		case id:
		case "":
			return nil, ErrUnknownMember
		default:
			return nil, ErrFencedInstance
		}
	}
	if m := g.members[id]; m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

func (g *group) answerJoin(m *member, j Joined, err error) {
	if m.joining != nil {
		m.joining <- answer[Joined]{j, err}
		m.joining = nil
	}
}

func (g *group) answerSync(m *member, s Synced, err error) {
	if m.syncing != nil {
		m.syncing <- answer[Synced]{s, err}
		m.syncing = nil
	}
}

func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
