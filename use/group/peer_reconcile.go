package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
)

// peerTries bounds the attempts at one change: a change of another peer makes an attempt stale.
const peerTries = 100

// heartbeat writes this peer's heartbeat key, and waits for the store for at most the time `most`.
// If the key is gone, the group has evicted this peer (ErrFenced).
func (p *Peer) heartbeat(ctx context.Context, most time.Duration) error {
	key, sent := memberKey(p.cfg.Group, p.id), time.Now()
	writing, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := p.log.SubmitUpkeep(writing, eventlog.Entry{
		Checks: []eventlog.Check{{Key: key, Version: p.heartbeatVersion}},
		Puts:   []eventlog.Put{{Key: key, Version: p.heartbeatVersion + 1, Value: p.self.encode()}},
	}).Wait(writing)
	if errors.Is(err, eventlog.ErrStale) || errors.Is(err, eventlog.ErrUnsure) {
		reading, cancel := context.WithTimeout(ctx, p.cfg.Session/3) // the time of the write may be over
		defer cancel()
		asked := time.Now()
		kv, readErr := p.log.Get(reading, key)
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
	now := time.Now()
	p.mu.Lock()
	expired := now.Sub(p.lastHeartbeat) >= p.cfg.Session // by now, not when the new heartbeat was stored: Assignment was empty until its answer came
	if expired {
		clear(p.held) // fill must read all positions again: those committed with SQL, and those whose commit has an unknown outcome
	}
	switch {
	case p.lastHeartbeat.IsZero():
		p.graceFrom = sent
	case now.Sub(p.heartbeatTaken) > p.cfg.Session/2: // those of others may still be on their way
		p.graceFrom, p.grace = now, p.cfg.Session
	}
	p.lastHeartbeat, p.heartbeatTaken = sent, now
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

// change is roster.change for a peer that is still a member; ErrFenced: it is none any more.
func (p *Peer) change(ctx context.Context, edit func([]peerMember) ([]peerMember, bool), with eventlog.Entry) error {
	err := p.roster.change(ctx, p.membership(), func(members []peerMember) ([]peerMember, bool, error) {
		if !slices.ContainsFunc(members, func(s peerMember) bool { return s.id == p.id }) {
			return nil, false, ErrFenced
		}
		next, needed := edit(members)
		return next, needed, nil
	}, func(r membership) {
		if _, member := r.find(p.id); member {
			p.adopt(r)
		}
	}, with)
	if errors.Is(err, ErrInconsistentProtocol) {
		return ErrFenced
	}
	return err
}

func (p *Peer) leave(ctx context.Context) error {
	gone := eventlog.Entry{Puts: []eventlog.Put{{Key: memberKey(p.cfg.Group, p.id)}}, Stays: true}
	err := p.change(ctx, func(members []peerMember) ([]peerMember, bool) {
		return slices.DeleteFunc(members, func(s peerMember) bool { return s.id == p.id }), true
	}, gone)
	if errors.Is(err, ErrFenced) { // not a member: delete its heartbeat key, which may still be there
		_, err = p.log.Append(ctx, gone)
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
	}, eventlog.Entry{})
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
