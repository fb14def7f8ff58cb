package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
)

// members are the HTTP clients that read as members of groups. Each has a group.Peer, which is its member in the group. If a client sends no
// request for the length of its session, its peer leaves.
type members struct {
	count  *limiter // members, and clients about to join
	still  func(context.Context, apikey.Identity) error
	logger *slog.Logger
	run    sync.WaitGroup // over all peers

	mu     sync.Mutex // guards the rest, and member.who
	byID   map[string]*member
	closed bool
}

// member is one client. Partitions of which it may still be handling events are busy; a partition that another member waits for is
// released once it is no longer busy.
type member struct {
	peer    *group.Peer
	who     apikey.Identity // the key that it counts for; guarded by members.mu
	group   string
	topics  []string
	session time.Duration
	silent  *time.Timer // runs while no request of the client is in progress
	leave   context.CancelFunc
	gone    chan struct{} // closed when the peer has left the group

	mu       sync.Mutex // guards the rest
	left     bool       // it is leaving, or has left: it takes no more requests
	requests int        // in progress
	busy     map[group.TopicPartition]bool
	from     map[partitionName]eventlog.TopicID // the id of the topic whose events the client got last under a name
	news     chan struct{}                      // closed, and replaced, when the assignment changed
}

// partitionName is a partition as clients name it.
type partitionName struct {
	topic     string
	partition int32
}

// newMembers takes still, a function that checks whether a key is still valid.
func newMembers(most int, still func(context.Context, apikey.Identity) error, logger *slog.Logger) *members {
	return &members{
		count: newLimiter(most, quarter(most), "members of groups", "let some members leave, or join through another weir process", kindTooManyMembers),
		still: still, logger: logger, byID: make(map[string]*member),
	}
}

// adopt counts a member for the key that its client uses now, so that its former key can be revoked. If the new key is at its
// limit, nothing changes.
func (ms *members) adopt(m *member, who apikey.Identity) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.who.ID() != who.ID() && ms.byID[m.peer.ID()] == m && ms.count.move(m.who, who) {
		m.who = who
	}
}

// checkKey makes a member leave if its key is no longer valid, so that other members need not wait for its session to end.
func (ms *members) checkKey(ctx context.Context, m *member) {
	ms.mu.Lock()
	who := m.who
	ms.mu.Unlock()
	err := ms.still(ctx, who)
	if err == nil || errors.Is(err, eventlog.ErrUnavailable) {
		return
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.who.ID() != who.ID() {
		return // it was adopted meanwhile
	}
	ms.logger.Info("http: a member leaves its group, because its key is no longer valid", "group", m.group, "member", m.peer.ID(), "key", who.ID(), "reason", err)
	m.leave()
}

// add runs a peer until its client leaves or is silent for its session, or close is called. After close it returns false.
func (ms *members) add(m *member) bool {
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
	m.gone, m.news = make(chan struct{}), make(chan struct{})
	m.busy, m.from = make(map[group.TopicPartition]bool), make(map[partitionName]eventlog.TopicID)
	m.silent = time.AfterFunc(m.session, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.requests > 0 || m.left {
			return // a request arrived at the last moment
		}
		ms.logger.Info("http: a member of a group sent no request for the time of its session; it is removed from the group", "group", m.group, "member", m.peer.ID(), "session", m.session)
		m.left = true
		cancel()
	})
	ms.byID[m.peer.ID()] = m
	ms.run.Go(func() {
		defer ms.remove(m)
		m.watch(ctx, ms)
	})
	return true
}

func (ms *members) remove(m *member) {
	m.leave()
	m.silent.Stop()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.byID, m.peer.ID())
	ms.count.end(m.who)
	close(m.gone) // after the member was uncounted: a client that waits for this channel may join
}

// enter finds a member for one of its client's requests. The session does not expire until leave is called.
func (ms *members) enter(groupName, id string) (m *member, leave func(), err error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m = ms.byID[id]
	if m == nil || m.group != groupName {
		return nil, nil, noMember()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil, nil, noMember()
	}
	m.requests++
	m.silent.Stop()
	return m, m.requestDone, nil
}

func noMember() error {
	return kindUnknownMember.because("the member left, or sent no request for the time of its session, or joined through another weir process; join again: POST /v1/groups/{group}/members")
}

// requestDone ends a request of the client, and restarts its session.
func (m *member) requestDone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests--; m.requests == 0 && !m.left {
		m.silent.Reset(m.session)
	}
}

// close makes all peers leave, and waits until they have left.
func (ms *members) close() {
	ms.mu.Lock()
	ms.closed = true
	for _, m := range ms.byID {
		m.leave()
	}
	ms.mu.Unlock()
	ms.run.Wait()
}

// watch runs the peer, and releases partitions that other members wait for and that are not busy, after each change of the assignment.
func (m *member) watch(ctx context.Context, ms *members) {
	keys := time.NewTicker(keyCheckEvery)
	defer keys.Stop()
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		if err := m.peer.Run(ctx); err != nil {
			ms.logger.Warn("http: a member was removed from its group", "group", m.group, "member", m.peer.ID(), "error", err)
		}
	})
	defer running.Wait()
	for {
		select {
		case <-over:
			return
		case <-keys.C:
			ms.checkKey(ctx, m)
			continue
		case <-m.peer.Changed():
		}
		m.mu.Lock()
		close(m.news)
		m.news = make(chan struct{})
		m.mu.Unlock()
		m.releaseIdle(ctx, ms.logger)
	}
}

// releaseIdle releases partitions that other members wait for and that are not busy.
func (m *member) releaseIdle(ctx context.Context, logger *slog.Logger) {
	m.mu.Lock()
	var free []group.TopicPartition
	for _, a := range m.peer.Revoking() {
		if !m.busy[a.TopicPartition] {
			free = append(free, a.TopicPartition)
		}
	}
	m.mu.Unlock()
	if len(free) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := m.peer.Release(ctx, free...); err != nil && ctx.Err() == nil {
		logger.Warn("http: cannot give up partitions; the member's next request tries again", "group", m.group, "member", m.peer.ID(), "error", err)
	}
}

// handled marks partitions (none given: all) as no longer busy, after the client committed them or asked for more.
func (m *member) handled(tps ...group.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tps == nil {
		clear(m.busy)
	}
	for _, tp := range tps {
		delete(m.busy, tp)
	}
}

// deliver marks the partitions of pages as busy. It leaves out pages of partitions that the member no longer owns.
func (m *member) deliver(pages []memberPage) (kept []memberPage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.peer.Assignment().Own
	for _, p := range pages { // pages and own are in the same order, by topic and partition
		for len(own) > 0 && before(own[0], p) {
			own = own[1:]
		}
		if len(own) == 0 || own[0].TopicPartition != p.tp || own[0].Since != p.of.since {
			continue
		}
		if len(p.events) > 0 {
			m.busy[p.tp] = true
			m.from[partitionName{p.of.topic, p.of.partition}] = p.tp.Topic
		}
		kept = append(kept, p)
	}
	return kept
}

// before reports whether a partition comes before a page's partition in Assignment.Own.
func before(a group.Assigned, p memberPage) bool {
	return cmp.Or(cmp.Compare(a.Topic, p.of.topic), bytes.Compare(a.TopicPartition.Topic[:], p.tp.Topic[:]), cmp.Compare(a.Partition, p.tp.Partition)) < 0
}

// means reports whether a client that names this partition can mean it. It cannot if the last events that it got under this name are of a former
// topic, which was deleted since.
func (m *member) means(a group.Assigned) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, given := m.from[partitionName{a.Topic, a.Partition}]
	return !given || id == a.TopicPartition.Topic
}

// changed returns a channel that is closed when the assignment changes.
func (m *member) changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}
