package group

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/table"
)

// Config sets a Coordinator up. The zero value of every field means its default.
type Config struct {
	// InitialDelay is how long the first members of an empty group wait for more members; each new
	// member extends it. Negative: no delay. Default 500 ms: long enough for a fleet that starts
	// together, short enough for a person who waits at a console. It is Kafka's
	// group.initial.rebalance.delay.ms (KIP-134), whose default is 3 s.
	InitialDelay time.Duration
	// ConsumerSession and ConsumerHeartbeat are for members of the consumer protocol (KIP-848):
	// after so long without a heartbeat they are evicted, and how often they send one. They are
	// Kafka's group.consumer.session.timeout.ms and group.consumer.heartbeat.interval.ms; default
	// 45 s and 5 s.
	ConsumerSession, ConsumerHeartbeat time.Duration
	// SessionMin and SessionMax bound the session timeout that a member of the classic protocol may
	// ask for. They are Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms;
	// default 6 s and 30 min.
	SessionMin, SessionMax time.Duration
	// MembersMax is the limit of members of one group: Kafka's group.max.size and
	// group.consumer.max.size; default 2000.
	MembersMax int

	Beside Beside // where SQL sessions commit offsets; nil: they commit none

	Logger *slog.Logger // default: slog.Default()

	limits limits
}

// limits are bounds that only tests change; 0: the default.
type limits struct {
	MembersMax   int // see Config.MembersMax
	GroupBytes   int // most bytes of all members' protocols in one group; default 16 MiB
	MembersBytes int // most bytes of all members' protocols and assignments in all groups, and of member ids given out; default 256 MiB
	GroupsMax    int // most groups in memory; default 10,000. Unused ones that are empty, or that another process coordinates, are dropped to make room, and are read again when needed

	StoredMax     int // most groups in the store; default 100,000
	PartitionsMax int // most partitions of all topics of a group whose partitions weir assigns; default 200,000

	OffsetRetention time.Duration // how long offsets that nobody uses are kept; default 7 days
	ExpireEvery     time.Duration // how often expired offsets are looked for; default 10 min
}

const (
	consumerSession, consumerHeartbeat = 45 * time.Second, 5 * time.Second // the defaults
	sessionMin, sessionMax             = 6 * time.Second, 30 * time.Minute // the defaults
	// protocolBytes bounds one member's protocols.
	protocolBytes = 1 << 20
)

func (c Config) withDefaults() Config {
	c.InitialDelay = cmp.Or(c.InitialDelay, 500*time.Millisecond)
	c.ConsumerSession = cmp.Or(c.ConsumerSession, consumerSession)
	c.ConsumerHeartbeat = cmp.Or(c.ConsumerHeartbeat, consumerHeartbeat)
	c.SessionMin, c.SessionMax = cmp.Or(c.SessionMin, sessionMin), cmp.Or(c.SessionMax, sessionMax)
	c.limits.MembersMax = cmp.Or(c.limits.MembersMax, c.MembersMax, 2000)
	c.limits.GroupBytes = cmp.Or(c.limits.GroupBytes, 16<<20)
	c.limits.MembersBytes = cmp.Or(c.limits.MembersBytes, 256<<20)
	c.limits.GroupsMax = cmp.Or(c.limits.GroupsMax, 10_000)
	c.limits.StoredMax = cmp.Or(c.limits.StoredMax, 100_000)
	c.limits.PartitionsMax = cmp.Or(c.limits.PartitionsMax, 200_000)
	c.limits.OffsetRetention = cmp.Or(c.limits.OffsetRetention, 7*24*time.Hour)
	c.limits.ExpireEvery = cmp.Or(c.limits.ExpireEvery, 10*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Coordinator coordinates consumer groups. Methods may be called concurrently.
//
// Only the goroutine that holds a group's lock uses the group: the goroutine of a request, or of
// the group's timer. Groups without members cost neither a goroutine nor a running timer.
type Coordinator struct {
	log     *eventlog.Log
	cfg     Config
	logger  *slog.Logger
	peers   register // the peers that joined through this coordinator, and its hosts
	hosting hosting  // its members of Kafka's consumer protocol
	census  census   // of the groups in the store

	settings *table.Table[groupSettings, map[string]map[string]string] // of groups, by group and name

	mu          sync.Mutex // guards groups, idle, every group's users, counted and asOf, bytes, memberships, hosts, and closed
	groups      map[string]*group
	idle        *list.List       // groups without users that may be forgotten, the least recently used first
	bytes       int              // of all members
	memberships int              // the number of groups that a host has members in, summed over all hosts
	hosts       map[string]usage // by client host
	closed      bool
	ticks       sync.WaitGroup // timer calls that run now

	hearing sync.Mutex       // guards silent
	silent  eventlog.Silence // of the keys of groups with members
}

// New makes a coordinator of all groups in the log's store. It reads a group when the group is
// first asked for.
func New(log *eventlog.Log, cfg Config) *Coordinator {
	cfg = cfg.withDefaults()
	c := &Coordinator{
		log: log, cfg: cfg, logger: cfg.Logger, peers: register{running: make(map[string]map[chan struct{}]bool)}, census: census{most: cfg.limits.StoredMax},
		groups: make(map[string]*group), hosts: make(map[string]usage), idle: list.New(),
	}
	c.settings = newSettings(log, cfg.Logger)
	return c
}

// Run removes expired groups and offsets until ctx ends, unless the log is read-only. When ctx has
// ended, all members get ErrMoved and look for another coordinator: members that wait for an answer
// get it immediately, the others at their next request.
func (c *Coordinator) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.followStore(ctx) })
	found := false // the previous sweep reached the store
	for {
		// The first sweep after this process started, or after a sweep that failed, removes
		// nothing: live members have until the next sweep to send a heartbeat.
		err := error(nil)
		if !c.log.ReadOnly() {
			err = c.sweep(ctx, found)
		}
		if found = err == nil; !found && ctx.Err() == nil {
			c.logger.Warn("expiry of group offsets failed; trying again later", "err", err)
		}
		c.forgetSilent()
		select {
		case <-ctx.Done():
			c.endHosts()
			c.close()
			return nil
		case <-time.After(c.cfg.limits.ExpireEvery):
		}
	}
}

// followStore drops all groups from memory when the store may have been rewound: their generations
// may no longer exist. The next request reads them from the store.
func (c *Coordinator) followStore(ctx context.Context) {
	for changed := c.log.IncarnationChanged(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = c.log.IncarnationChanged() // before the groups are reset: the store may be rewound again meanwhile
		for _, g := range c.useAll() {
			<-g.slot
			g.reset()
			g.moved = 0
			g.unlock()
		}
	}
}

// useAll lists the groups in memory, and counts the caller as a user of each.
func (c *Coordinator) useAll() (all []*group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		c.use(g)
		all = append(all, g)
	}
	return all
}

// close ends all waits and all timers. The groups stay in the store as they are.
func (c *Coordinator) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, g := range c.useAll() {
		<-g.slot
		g.reset()
		g.timer.Stop()
		g.unlock()
	}
	c.ticks.Wait()
}

// mayChange returns ErrReadOnly if this process may not change groups. Every method that could
// change one asks first.
func (c *Coordinator) mayChange(name string) error {
	if c.log.ReadOnly() {
		return fmt.Errorf("group %q: %w", name, ErrReadOnly)
	}
	return nil
}

// serves returns an error if a group of this name cannot be served here.
func (c *Coordinator) serves(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servesLocked(name)
}

func (c *Coordinator) servesLocked(name string) error {
	switch {
	case len(name) > nameMax:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidGroup, len(name), nameMax)
	case c.closed:
		return fmt.Errorf("group %q: %w: this broker is stopping", name, ErrMoved)
	}
	return nil
}

// AsOf returns a time: this process may not know what others have changed in a group since then. It
// answers a member's heartbeats by what was in the store then, or later. Zero: it does not know the
// group, and answers that all is well while it loads the group. The simulation judges by this what
// members were told.
func (c *Coordinator) AsOf(group, member string) time.Time {
	if h := c.hostIfAny(group); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.members[member] != nil {
			return h.asOf
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.groups[group]; g != nil {
		return g.asOf
	}
	return time.Time{}
}

// hold finds a group in memory, or makes it, and locks it.
func (c *Coordinator) hold(ctx context.Context, name string) (*group, error) {
	c.mu.Lock()
	if err := c.servesLocked(name); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	g := c.groups[name]
	if g == nil {
		if len(c.groups) >= c.cfg.limits.GroupsMax && !c.evict() {
			c.mu.Unlock()
			return nil, fmt.Errorf("group %q: %w: %d groups are in use, which is the limit", name, ErrUnavailable, c.cfg.limits.GroupsMax)
		}
		g = newGroup(c, name)
		c.groups[name] = g
	}
	c.use(g)
	c.mu.Unlock()
	select {
	case <-g.slot:
		return g, nil
	case <-ctx.Done():
		c.release(g)
		return nil, fmt.Errorf("group %q: %w (%w)", name, ErrLoading, context.Cause(ctx))
	}
}

// evict drops the least recently used idle group from memory, and reports whether there was one.
func (c *Coordinator) evict() bool {
	oldest := c.idle.Front()
	if oldest == nil {
		return false
	}
	c.forget(oldest.Value.(*group))
	return true
}

// use counts one more user of a group. c.mu is held.
func (c *Coordinator) use(g *group) {
	g.users++
	c.notIdle(g)
}

func (c *Coordinator) notIdle(g *group) {
	if g.idle != nil {
		c.idle.Remove(g.idle)
		g.idle = nil
	}
}

func (c *Coordinator) forget(g *group) {
	c.notIdle(g)
	g.timer.Stop()
	delete(c.groups, g.name)
	c.account(g, nil)
}

// release ends a use of the group. A group without users is dropped from memory if it was only
// read. It may be evicted if the store has the same state, or if it has nothing but unused member
// ids.
func (c *Coordinator) release(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.users--
	switch {
	case g.users > 0 || c.groups[g.name] != g:
	case len(g.pending) == 0 && (g.version == 0 && len(g.members) == 0 || !g.owned && !g.seenEmpty()):
		c.forget(g)
	case len(g.members) == 0 || !g.owned:
		g.idle = c.idle.PushBack(g)
	}
}

// stay locks a group that the caller already has a pointer to. It waits as long as necessary.
func (c *Coordinator) stay(g *group) {
	c.mu.Lock()
	c.use(g)
	c.mu.Unlock()
	<-g.slot
}
