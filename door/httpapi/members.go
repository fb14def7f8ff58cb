package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
)

// members are the clients that read as part of a group. Each has a group.Peer that plays it towards the others; a client that is silent
// for longer than its session is taken for dead, and its peer leaves.
type members struct {
	most    int // at once
	mostKey int // of them with one key
	still   func(context.Context, apikey.Identity) error
	logger  *slog.Logger
	run     sync.WaitGroup // over all peers

	mu     sync.Mutex // guards the rest, and whose the members are
	byID   map[string]*member
	seats  map[string]int // taken, by the key's id
	closed bool
}

// member is one client. What it was given and may still be working on is lent; a partition that another member waits for is
// released once it is not lent any more.
type member struct {
	peer    *group.Peer
	who     apikey.Identity // whose seat it has; of members
	group   string
	topics  []string
	session time.Duration
	silent  *time.Timer // runs while no request of the client is in progress
	leave   context.CancelFunc
	gone    chan struct{} // closed when the peer is no member any more

	mu   sync.Mutex // guards the rest
	left bool       // it is leaving, or has left: it takes no more requests
	busy int        // requests in progress
	lent map[group.TopicPartition]bool
	from map[partitionName]eventlog.TopicID // whose events the client was given last
	news chan struct{}                      // closed, and replaced, when the assignment changed
}

// partitionName is how clients name a partition.
type partitionName struct {
	topic     string
	partition int32
}

// newMembers wants to know who is still let in.
func newMembers(most, mostKey int, still func(context.Context, apikey.Identity) error, logger *slog.Logger) *members {
	return &members{most: most, mostKey: mostKey, still: still, logger: logger, byID: make(map[string]*member), seats: make(map[string]int)}
}

// sit takes a seat for a member that is about to join, or says why there is none. It is kept until stand, or for as long as a member
// lives that was added with it: who has no seat does not even disturb the group.
//
// Without keys all clients are one, and have all seats.
func (ms *members) sit(who apikey.Identity) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	taken := 0
	for _, n := range ms.seats {
		taken += n
	}
	switch n := ms.seats[who.ID()]; {
	case who.ID() != "" && n >= ms.mostKey:
		return kindTooManyMembers.past(int64(ms.mostKey), "the key %s has %d members of groups here, and %d of %d are the most for one key; let some leave, or join through another process", who, n, ms.mostKey, ms.most)
	case taken >= ms.most:
		return kindOverloaded.past(int64(ms.most), "there are %d members of groups here, the most there may be", taken)
	}
	ms.seats[who.ID()]++
	return nil
}

// stand gives a seat back.
func (ms *members) stand(who apikey.Identity) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.free(who)
}

func (ms *members) free(who apikey.Identity) {
	if ms.seats[who.ID()]--; ms.seats[who.ID()] == 0 {
		delete(ms.seats, who.ID())
	}
}

// adopt makes a member that of the key that it is used with, so that the one before can be revoked. Where that key has all its
// seats, nothing changes.
func (ms *members) adopt(m *member, who apikey.Identity) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.who.ID() == who.ID() || ms.byID[m.peer.ID()] != m || ms.seats[who.ID()] >= ms.mostKey {
		return
	}
	ms.free(m.who)
	ms.seats[who.ID()]++
	m.who = who
}

// judge lets a member go whose key is not good any more: nobody else should wait for its session to end.
func (ms *members) judge(ctx context.Context, m *member) {
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
	ms.logger.Info("http: a member of a group is let go with its key", "group", m.group, "member", m.peer.ID(), "key", who.ID(), "reason", err)
	m.leave()
}

// add lets a peer live until its client leaves or falls silent, or close is called. It is false after that.
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
	m.lent, m.from = make(map[group.TopicPartition]bool), make(map[partitionName]eventlog.TopicID)
	m.silent = time.AfterFunc(m.session, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.busy > 0 || m.left {
			return // a request came at the last moment
		}
		ms.logger.Info("http: a member of a group was silent for its whole session, and is let go", "group", m.group, "member", m.peer.ID(), "session", m.session)
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
	ms.free(m.who)
	close(m.gone) // whoever waits for it finds the seat free
}

// enter finds a member for one of its client's requests: until leave is called, the client is not silent.
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
	m.busy++
	m.silent.Stop()
	return m, m.rest, nil
}

func noMember() error {
	return kindUnknownMember.because("it left, or was silent for its session, or joined through another process; join again: POST /v1/groups/{group}/members")
}

// rest ends a request of the client.
func (m *member) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy--; m.busy == 0 && !m.left {
		m.silent.Reset(m.session)
	}
}

// close makes all peers leave, and waits for it.
func (ms *members) close() {
	ms.mu.Lock()
	ms.closed = true
	for _, m := range ms.byID {
		m.leave()
	}
	ms.mu.Unlock()
	ms.run.Wait()
}

// watch runs the peer, and gives back at once what others wait for and the client has nothing of.
func (m *member) watch(ctx context.Context, ms *members) {
	look := time.NewTicker(keyLook)
	defer look.Stop()
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		if err := m.peer.Run(ctx); err != nil {
			ms.logger.Warn("http: a member lost its place in the group", "group", m.group, "member", m.peer.ID(), "error", err)
		}
	})
	defer running.Wait()
	for {
		select {
		case <-over:
			return
		case <-look.C:
			ms.judge(ctx, m)
			continue
		case <-m.peer.Changed():
		}
		m.mu.Lock()
		close(m.news)
		m.news = make(chan struct{})
		m.mu.Unlock()
		m.giveBack(ctx, ms.logger)
	}
}

// giveBack releases what others wait for and the client is not working on.
func (m *member) giveBack(ctx context.Context, logger *slog.Logger) {
	m.mu.Lock()
	var free []group.TopicPartition
	for _, a := range m.peer.Assignment().Revoking {
		if !m.lent[a.TopicPartition] {
			free = append(free, a.TopicPartition)
		}
	}
	m.mu.Unlock()
	if len(free) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.peer.Release(ctx, free...); err != nil && ctx.Err() == nil {
		logger.Warn("http: partitions could not be released; it is tried with the member's next request", "group", m.group, "member", m.peer.ID(), "error", err)
	}
}

// settle takes partitions for worked through: the client says so by committing them, or by asking for more.
func (m *member) settle(tps ...group.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tps == nil {
		clear(m.lent)
	}
	for _, tp := range tps {
		delete(m.lent, tp)
	}
}

// lend notes that the client gets events of some partitions. It leaves out those that are not its own any more.
func (m *member) lend(pages []memberPage) (kept []memberPage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := make(map[group.TopicPartition]int32)
	for _, a := range m.peer.Assignment().Own {
		own[a.TopicPartition] = a.Since
	}
	for _, p := range pages {
		if since, ok := own[p.tp]; !ok || since != p.of.since {
			continue
		}
		if len(p.events) > 0 {
			m.lent[p.tp] = true
			m.from[partitionName{p.of.topic, p.of.partition}] = p.tp.Topic
		}
		kept = append(kept, p)
	}
	return kept
}

// means reports whether the client can mean this partition by its name: not where all that it was given under the name is of a topic that was
// deleted since.
func (m *member) means(a group.Assigned) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, given := m.from[partitionName{a.Topic, a.Partition}]
	return !given || id == a.TopicPartition.Topic
}

// changed is closed when the assignment changes.
func (m *member) changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}
