package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
)

// peerTries bounds the attempts at one change: a change of another peer makes an attempt stale.
const peerTries = 100

// heartbeat writes this peer's heartbeat key. If the key is gone, the group has evicted this peer
// (ErrFenced).
func (p *Peer) heartbeat(ctx context.Context) error {
	key, sent := memberKey(p.cfg.Group, p.id), time.Now()
	_, err := p.log.SubmitUpkeep(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: key, Version: p.heartbeatVersion}},
		Puts:   []eventlog.Put{{Key: key, Version: p.heartbeatVersion + 1, Value: p.encode()}},
	}).Wait(ctx)
	if errors.Is(err, eventlog.ErrStale) || errors.Is(err, eventlog.ErrUnsure) {
		asked := time.Now()
		kv, readErr := p.log.Get(ctx, key)
		switch {
		case readErr != nil:
			return fmt.Errorf("heartbeat: %w (%w)", err, readErr)
		case kv.Version == p.heartbeatVersion: // it did not happen, or not yet
			return fmt.Errorf("heartbeat: %w (%w)", ErrUnavailable, err)
		case kv.Version == 0:
			p.logger.Warn("the group evicted this member: it sent no heartbeat within its session timeout", "silent for", time.Since(p.heartbeatSent()))
			p.finish(ErrFenced)
			return ErrFenced
		}
		// Only this peer writes the key: this heartbeat, or an earlier one whose outcome was
		// unknown, was stored.
		p.heartbeatVersion, sent, err = kv.Version-1, asked.Add(-kv.Age), nil
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w (%w)", ErrUnavailable, err)
	}
	p.heartbeatVersion++
	p.mu.Lock()
	silent := sent.Sub(p.lastHeartbeat)
	expired := time.Since(p.lastHeartbeat) >= p.cfg.Session // By now, whenever the new heartbeat was stored: Assignment was empty until its answer came.
	if expired {
		clear(p.held) // fill must read all positions again: those committed with SQL, and those whose commit has an unknown outcome
	}
	switch {
	case p.lastHeartbeat.IsZero():
		p.graceFrom = sent
	case silent > p.cfg.Session/2:
		p.graceFrom, p.grace = sent, p.cfg.Session
	}
	p.lastHeartbeat = sent
	p.mu.Unlock()
	if expired {
		p.notify()
	}
	return nil
}

// reconcile reads the group's state, and writes a new assignment if members or topics changed. With
// checkMembers set it also reads all heartbeats: one more store call.
func (p *Peer) reconcile(ctx context.Context, checkMembers bool) error {
	for range peerTries {
		r, err := p.read(ctx)
		if err != nil {
			return err
		}
		joining := p.membership().version == 0
		if _, member := r.find(p.id); !member && !joining {
			p.adopt(r)
			return ErrFenced
		}
		next, heartbeats, err := p.plan(ctx, r, checkMembers)
		if err != nil {
			return err
		}
		if !next.same(r) || len(heartbeats.Puts) > 0 {
			next, err = p.write(ctx, next, heartbeats)
		}
		switch {
		case err == nil:
			if _, member := next.find(p.id); !member && joining {
				return fmt.Errorf("%w: the group has %d members, which is the limit", ErrFull, len(next.members))
			}
			p.adopt(next)
			return nil
		case errors.Is(err, eventlog.ErrStale), errors.Is(err, eventlog.ErrUnsure): // stale, or of unknown outcome: read the state again
		default:
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d attempts: other members changed the group each time", ErrUnavailable, peerTries)
}

// read reads the group's state: one trip, as a rule.
func (p *Peer) read(ctx context.Context) (membership, error) {
	r, err := readMembership(ctx, p.log, p.cfg.Group, p.others)
	if joined := p.membership().version > 0; joined && errors.Is(err, ErrInconsistentProtocol) {
		return r, nil // all peers were evicted and members of another kind have joined: this peer is not a member
	}
	return r, err
}

// plan returns the group's next state, and the checks and puts on heartbeat keys that must be
// committed with it.
func (p *Peer) plan(ctx context.Context, r membership, checkMembers bool) (next membership, heartbeats eventlog.Entry, err error) {
	next = r
	if checkMembers {
		// The heartbeats are read after the state: a member without a heartbeat key was evicted or
		// has left.
		asked := time.Now()
		beats, err := listHeartbeats(ctx, p.log, p.cfg.Group, p.silent.Of)
		if err != nil {
			return r, heartbeats, fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
		p.silent.Forget(asked)
		next.members, heartbeats = p.liveMembers(r.members, beats)
	}
	topics, err := p.topics(ctx, next)
	if err != nil {
		return r, heartbeats, err
	}
	if !checkMembers && r.version == p.plannedVersion && slices.Equal(topics, p.plannedTopics) {
		return r, heartbeats, nil
	}
	total := 0
	for _, t := range topics {
		total += t.partitions
	}
	if total > partitionsMax {
		return r, heartbeats, fmt.Errorf("%w: the group's topics have %d partitions, the limit is %d: split the topics over several groups", ErrTooLarge, total, partitionsMax)
	}
	next.members = assignStable(next.members, topics)
	if next.same(r) {
		p.plannedVersion, p.plannedTopics = r.version, topics
	}
	return next, heartbeats, nil
}

// assignStable runs assignPartitions twice: after the first run every subscribed partition has a
// holder, so that a third run would change nothing.
func assignStable(members []peerMember, topics []topicSize) []peerMember {
	return assignPartitions(assignPartitions(members, topics), topics)
}

// liveMembers returns the members with a recent heartbeat, and new peers. For each evicted peer it
// adds a put that deletes its heartbeat key, and a check that the peer has not sent another
// heartbeat.
func (p *Peer) liveMembers(members []peerMember, beats []heartbeat) (alive []peerMember, heartbeats eventlog.Entry) {
	// A full group evicts without the grace period: otherwise short-lived joiners could fill it for
	// good.
	full := len(beats) > peersMax
	dead := func(s heartbeat) bool { return s.dead() && s.id != p.id && (full || p.graceElapsed(s)) }
	last := make(map[string]heartbeat)
	for _, s := range beats {
		last[s.id] = s
	}
	forget := func(s heartbeat) {
		key := memberKey(p.cfg.Group, s.id)
		heartbeats.Checks = append(heartbeats.Checks, eventlog.Check{Key: key, Version: s.version})
		heartbeats.Puts = append(heartbeats.Puts, eventlog.Put{Key: key, Version: s.version + 1})
	}
	for _, m := range members {
		s, there := last[m.id]
		delete(last, m.id)
		switch {
		case there && dead(s):
			p.logger.Warn("evicting a member: it sent no heartbeat within its session timeout", "other", m.id, "silent", s.age, "partitions", len(m.own)+len(m.revoking))
			forget(s)
		case there:
			alive = append(alive, m)
		}
	}
	for _, s := range beats {
		switch _, is := last[s.id]; {
		case !is: // a member
		case dead(s):
			forget(s) // it died before it became a member
		case (!s.dead() || s.id == p.id) && len(alive) < peersMax:
			alive = append(alive, peerMember{id: s.id, info: s.info})
		}
	}
	slices.SortFunc(alive, byMemberID)
	return alive, heartbeats
}

// graceElapsed reports whether a live peer would have sent a heartbeat by now. After this peer's
// own heartbeats failed, or just after its start, the store may have been down for everybody. A
// live peer sends three per session.
func (p *Peer) graceElapsed(s heartbeat) bool {
	return time.Since(p.graceFrom) >= max(p.grace, s.session()/2)
}

// topics returns the existing topics that members subscribe to. If the state assigns a partition
// that this process does not know, it refreshes the catalog first.
func (p *Peer) topics(ctx context.Context, r membership) ([]topicSize, error) {
	topics := p.known(r)
	if r.version == p.refreshed || r.covers(topics) {
		return topics, nil
	}
	if err := p.log.RefreshTopics(ctx); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	p.refreshed = r.version
	return p.known(r), nil
}

func (p *Peer) known(r membership) (out []topicSize) {
	names := make(map[string]bool)
	for _, m := range r.members {
		for _, name := range m.info.Topics {
			names[name] = true
		}
	}
	all := p.log.Topics()
	for name := range names {
		i, ok := slices.BinarySearchFunc(all, name, func(t eventlog.Topic, name string) int { return strings.Compare(t.Name, name) })
		if ok {
			out = append(out, topicSize{name, all[i].ID, len(all[i].Partitions)})
		}
	}
	slices.SortFunc(out, func(a, b topicSize) int { return strings.Compare(a.name, b.name) })
	return out
}

// covers reports whether topics contains every assigned partition.
func (r membership) covers(topics []topicSize) bool {
	size := make(map[eventlog.TopicID]int)
	for _, t := range topics {
		size[t.id] = t.partitions
	}
	for _, m := range r.members {
		for _, tp := range slices.Concat(m.own, m.revoking) {
			if int(tp.Partition) >= size[tp.Topic] {
				return false
			}
		}
	}
	return true
}

func (r membership) same(o membership) bool {
	return slices.EqualFunc(r.members, o.members, func(a, b peerMember) bool {
		return a.id == b.id && slices.Equal(a.own, b.own) && slices.Equal(a.revoking, b.revoking)
	})
}

// write commits next as a new generation if the group is still at the version that next was made
// from.
func (p *Peer) write(ctx context.Context, next membership, with eventlog.Entry) (membership, error) {
	before := next.version
	next.generation++
	next.version = before.Next()
	if before == 0 {
		next.maker = p.cfg.By
	}
	value, err := next.encode(p.cfg.Group)
	if err != nil {
		return next, err
	}
	if beat := next.expiredOwner; beat != nil {
		next.expiredOwner = nil
		with.Checks = append(with.Checks, eventlog.Check{Key: beat.Key, Version: beat.Version}) // the expired coordinator has not come back
		if beat.Version > 0 {
			with.Puts = append(with.Puts, eventlog.Put{Key: beat.Key, Version: beat.Version + 1})
		}
	}
	with.Checks = append(with.Checks, eventlog.Check{Key: StateKey(p.cfg.Group), Version: before})
	with.Puts = append(with.Puts, eventlog.Put{Key: StateKey(p.cfg.Group), Version: next.version, Value: value})
	_, err = p.log.Append(ctx, with)
	switch {
	case err == nil:
		p.logger.Info("group has a new generation", "generation", next.generation, "members", len(next.members))
		p.among.wake(p)
		if before == 0 {
			p.census.count(next.maker, 1)
		}
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
		err = fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	return next, err
}

// adopt makes r this peer's view of the group. Lost partitions leave the assignment immediately;
// new ones are added when fill has read their positions.
func (p *Peer) adopt(r membership) {
	me, member := r.find(p.id)
	if !member {
		p.logger.Warn("this member was evicted: it sent no heartbeat within its session timeout")
		p.finish(ErrFenced)
		return
	}
	p.mu.Lock()
	before, _ := p.group.find(p.id)
	p.group = r
	for tp := range p.held {
		if !me.has(tp) {
			delete(p.held, tp)
		}
	}
	p.mu.Unlock()
	if !slices.Equal(before.own, me.own) || !slices.Equal(before.revoking, me.revoking) {
		p.notify()
	}
}

func (p *Peer) membership() membership {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group
}

// change applies edit, reassigns and commits: one store call if the known state is current;
// otherwise it reads and retries. edit returns false if there is nothing to do. ErrFenced: this
// peer is no longer a member.
func (p *Peer) change(ctx context.Context, edit func([]peerMember) ([]peerMember, bool), puts ...eventlog.Put) error {
	r := p.membership()
	for range peerTries {
		if _, member := r.find(p.id); !member {
			return ErrFenced
		}
		next := r
		members, needed := edit(slices.Clone(r.members))
		if !needed {
			return nil
		}
		topics, err := p.topics(ctx, r)
		if err != nil {
			return err
		}
		next.members = assignStable(members, topics)
		next, err = p.write(ctx, next, eventlog.Entry{Puts: puts})
		if err == nil {
			if _, member := next.find(p.id); member {
				p.adopt(next)
			}
			return nil
		}
		if !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
			return err
		}
		var readErr error
		if r, readErr = p.read(ctx); readErr != nil {
			if errors.Is(err, eventlog.ErrUnsure) {
				return fmt.Errorf("%w (%v)", err, readErr)
			}
			return readErr
		}
		if _, member := r.find(p.id); member {
			p.adopt(r)
		}
	}
	return fmt.Errorf("%w: gave up after %d attempts: other members changed the group each time", ErrUnavailable, peerTries)
}

func (p *Peer) leave(ctx context.Context) error {
	err := p.change(ctx, func(members []peerMember) ([]peerMember, bool) {
		return slices.DeleteFunc(members, func(s peerMember) bool { return s.id == p.id }), true
	}, eventlog.Put{Key: memberKey(p.cfg.Group, p.id)})
	if errors.Is(err, ErrFenced) { // not a member: delete its heartbeat key, which may still be there
		_, err = p.log.Append(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: memberKey(p.cfg.Group, p.id)}}})
	}
	return err
}

func (p *Peer) release(ctx context.Context, tps []TopicPartition) error {
	gives := make(map[TopicPartition]bool, len(tps))
	for _, tp := range tps {
		gives[tp] = true
	}
	given := func(tp TopicPartition) bool { return gives[tp] }
	me, _ := p.membership().find(p.id)
	if p.ended() != nil || !slices.ContainsFunc(tps, me.has) {
		return nil
	}
	before := p.hide(tps)
	err := p.change(ctx, func(members []peerMember) ([]peerMember, bool) {
		i := slices.IndexFunc(members, func(s peerMember) bool { return s.id == p.id })
		me := members[i]
		me.own, me.revoking = slices.DeleteFunc(slices.Clone(me.own), given), slices.DeleteFunc(slices.Clone(me.revoking), given)
		needed := len(me.own) < len(members[i].own) || len(me.revoking) < len(members[i].revoking)
		members[i] = me
		return members, needed
	})
	switch {
	case errors.Is(err, ErrFenced):
		p.finish(ErrFenced)
		return nil
	case err != nil && !errors.Is(err, eventlog.ErrUnsure):
		p.show(before)
	}
	poke(p.wake) // partitions gained by the reassignment need their positions
	p.notify()
	return err
}

// hide removes partitions from the assignment. A partition that is assigned again gets a new
// Assigned value.
func (p *Peer) hide(tps []TopicPartition) (before []*Assigned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tp := range tps {
		if a := p.held[tp]; a != nil {
			before = append(before, a)
			delete(p.held, tp)
		}
	}
	return before
}

func (p *Peer) show(hidden []*Assigned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	me, _ := p.group.find(p.id)
	for _, a := range hidden {
		if p.end == nil && me.has(a.TopicPartition) {
			p.held[a.TopicPartition] = a
		}
	}
}

func jitter(d time.Duration) time.Duration { return d*7/8 + chance.N(max(1, d/4)) }
