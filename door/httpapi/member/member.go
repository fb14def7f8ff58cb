// Package member keeps HTTP clients in their consumer groups between their requests. Each client
// has a group.Peer, which is its member in the group. If a client sends no request for the length
// of its session, its peer leaves.
package member

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// Caller is who makes a request. It is a pointer: a client that shows other credentials is another
// caller, even with the same id.
type Caller interface {
	ID() string
	String() string
}

// Config is what members need of the door.
type Config struct {
	// Valid checks whether a caller's credentials are still valid. eventlog.ErrUnavailable: that is
	// not known.
	Valid func(context.Context, Caller) error
	// Move takes a member from the count of its first parameter, and adds it to the count of the
	// second. It returns false, and does nothing, if the second is at its limit.
	Move func(from, to Caller) bool
	// End uncounts a member.
	End          func(Caller)
	CheckEvery   time.Duration // how often the credentials of a member's client are checked
	StoreTimeout time.Duration // bounds a release of partitions
	Logger       *slog.Logger
}

// Members are the clients that are members. Methods may be called concurrently.
type Members struct {
	cfg Config
	run sync.WaitGroup // over all peers

	mu     sync.Mutex // guards the rest, and Member.who
	byID   map[string]*Member
	closed bool
}

// Member is one client. Partitions of which it may still be handling events are busy; a partition
// that another member waits for is released once it is no longer busy. Methods may be called
// concurrently.
type Member struct {
	Peer    *group.Peer
	Group   string
	Topics  []string
	Session time.Duration

	who    Caller      // whom it counts for; guarded by Members.mu
	silent *time.Timer // runs while no request of the client is in progress
	leave  context.CancelFunc
	gone   chan struct{}
	cfg    *Config

	mu       sync.Mutex // guards the rest
	left     bool       // it is leaving, or has left: it takes no more requests
	requests int        // in progress
	busy     map[group.TopicPartition]bool
	from     map[partitionName]eventlog.TopicID // the id of the topic whose events the client got last under a name
	changed  chan struct{}                      // closed, and replaced, when the assignment changes
}

// partitionName is a partition as clients name it.
type partitionName struct {
	topic     string
	partition int32
}

// New returns no members yet.
func New(cfg Config) *Members {
	return &Members{cfg: cfg, byID: make(map[string]*Member)}
}

// Add runs a member's peer until the client leaves, or is silent for its session, or Close is
// called. The member is counted for the caller who; Config.End uncounts it. After Close, Add does
// nothing and returns false.
func (ms *Members) Add(m *Member, who Caller) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.leave = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.left = true
		cancel()
	}
	m.who, m.cfg = who, &ms.cfg
	m.gone, m.changed = make(chan struct{}), make(chan struct{})
	m.busy, m.from = make(map[group.TopicPartition]bool), make(map[partitionName]eventlog.TopicID)
	m.silent = time.AfterFunc(m.Session, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.requests > 0 || m.left {
			return // a request arrived at the last moment
		}
		m.cfg.Logger.Info("http: a member of a group sent no request for the time of its session; it is removed from the group", "group", m.Group, "member", m.Peer.ID(), "session", m.Session)
		m.left = true
		cancel()
	})
	ms.byID[m.Peer.ID()] = m
	ms.run.Go(func() {
		defer ms.remove(m)
		ms.watch(ctx, m)
	})
	return true
}

func (ms *Members) remove(m *Member) {
	m.leave()
	m.silent.Stop()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.byID, m.Peer.ID())
	ms.cfg.End(m.who)
	close(m.gone) // after the member was uncounted: a client that waits for this channel may join
}

// Enter finds a member for one of its client's requests; nil: it left, or was removed. The session
// does not expire until done is called.
func (ms *Members) Enter(groupName, id string) (m *Member, done func()) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m = ms.byID[id]
	if m == nil || m.Group != groupName {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil, nil
	}
	m.requests++
	m.silent.Stop()
	return m, m.requestDone
}

// requestDone ends a request of the client, and restarts its session.
func (m *Member) requestDone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests--; m.requests == 0 && !m.left {
		m.silent.Reset(m.Session)
	}
}

// Adopt counts a member for the caller that its client is now, so that its former credentials may
// end: a key that is revoked, a token that expires. If the new caller is at its limit, nothing
// changes.
func (ms *Members) Adopt(m *Member, who Caller) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.byID[m.Peer.ID()] == m && (m.who.ID() == who.ID() || ms.cfg.Move(m.who, who)) {
		m.who = who
	}
}

// checkCaller makes a member leave if its credentials are no longer valid, so that other members
// need not wait for its session to end.
func (ms *Members) checkCaller(ctx context.Context, m *Member) {
	ms.mu.Lock()
	who := m.who
	ms.mu.Unlock()
	err := ms.cfg.Valid(ctx, who)
	if err == nil || errors.Is(err, eventlog.ErrUnavailable) {
		return
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.who != who {
		return // it was adopted meanwhile
	}
	m.cfg.Logger.Info("http: a member leaves its group, because its credentials are no longer valid", "group", m.Group, "member", m.Peer.ID(), "who", who.ID(), "err", err)
	m.leave()
}

// Close makes all peers leave, and waits until they have left.
func (ms *Members) Close() {
	ms.mu.Lock()
	ms.closed = true
	for _, m := range ms.byID {
		m.leave()
	}
	ms.mu.Unlock()
	ms.run.Wait()
}

// watch runs a peer, and releases partitions that other members wait for and that are not busy,
// after each change of the assignment.
func (ms *Members) watch(ctx context.Context, m *Member) {
	keys := time.NewTicker(ms.cfg.CheckEvery)
	defer keys.Stop()
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		if err := m.Peer.Run(ctx); err != nil {
			m.cfg.Logger.Warn("http: a member was removed from its group", "group", m.Group, "member", m.Peer.ID(), "err", err)
		}
	})
	defer running.Wait()
	for {
		select {
		case <-over:
			return
		case <-keys.C:
			ms.checkCaller(ctx, m)
			continue
		case <-m.Peer.Changed():
		}
		m.mu.Lock()
		close(m.changed)
		m.changed = make(chan struct{})
		m.mu.Unlock()
		m.ReleaseIdle(ctx)
	}
}

// Leave makes the member leave its group. Gone says when it has left.
func (m *Member) Leave() { m.leave() }

// Gone returns a channel that is closed when the member has left its group.
func (m *Member) Gone() <-chan struct{} { return m.gone }

// Changed returns a channel that is closed when the assignment changes.
func (m *Member) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// ReleaseIdle releases partitions that other members wait for and that are not busy. If that fails,
// the member's next request tries again.
func (m *Member) ReleaseIdle(ctx context.Context) {
	m.mu.Lock()
	var free []group.TopicPartition
	for _, a := range m.Peer.Revoking() {
		if !m.busy[a.TopicPartition] {
			free = append(free, a.TopicPartition)
		}
	}
	m.mu.Unlock()
	if len(free) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
	defer cancel()
	if err := m.Peer.Release(ctx, free...); err != nil && ctx.Err() == nil {
		m.cfg.Logger.Warn("http: cannot give up partitions; the member's next request tries again", "group", m.Group, "member", m.Peer.ID(), "err", err)
	}
}

// Handled marks partitions (none given: all) as no longer busy, after the client committed them or
// asked for more.
func (m *Member) Handled(tps ...group.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tps == nil {
		clear(m.busy)
	}
	for _, tp := range tps {
		delete(m.busy, tp)
	}
}

// Delivery is what an answer has of one partition.
type Delivery struct {
	group.Assigned      // as it was when the events were read
	Events         bool // there are events
}

// Deliver returns, for each element of all, whether the member still owns the partition by the same
// assignment. It marks those of them that have events as busy. The elements must be in the order of
// Assignment.Own.
func (m *Member) Deliver(all []Delivery) (owned []bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.Peer.Assignment().Own
	owned = make([]bool, len(all))
	for i, d := range all {
		for len(own) > 0 && before(own[0], d.Assigned) {
			own = own[1:]
		}
		owned[i] = len(own) > 0 && own[0].TopicPartition == d.TopicPartition && own[0].Since == d.Since
		if owned[i] && d.Events {
			m.busy[d.TopicPartition] = true
			m.from[partitionName{d.Topic, d.Partition}] = d.TopicPartition.Topic
		}
	}
	return owned
}

// before reports whether one partition comes before another in Assignment.Own.
func before(a, b group.Assigned) bool {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), bytes.Compare(a.TopicPartition.Topic[:], b.TopicPartition.Topic[:]), cmp.Compare(a.Partition, b.Partition)) < 0
}

// Means reports whether a client that names this partition can mean it. It cannot if the last
// events that it got under this name are of a former topic, which was deleted since.
func (m *Member) Means(a group.Assigned) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, given := m.from[partitionName{a.Topic, a.Partition}]
	return !given || id == a.TopicPartition.Topic
}
