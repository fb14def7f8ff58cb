package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// peerTries bounds how often a change is tried while other peers change the group as well.
const peerTries = 100

// beat gives a sign of life. A peer whose last sign is gone was taken for dead.
func (p *Peer) beat(ctx context.Context) error {
	key, sent := memberKey(p.cfg.Group, p.id), time.Now()
	_, err := p.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: key, Version: p.beaten}},
		Puts:   []eventlog.Put{{Key: key, Version: p.beaten + 1, Value: p.encode()}},
	})
	if errors.Is(err, eventlog.ErrStale) || errors.Is(err, eventlog.ErrUnsure) {
		asked := time.Now()
		kv, readErr := p.log.Get(ctx, key)
		switch {
		case readErr != nil:
			return fmt.Errorf("sign of life: %w (%w)", err, readErr)
		case kv.Version == p.beaten: // it did not happen, or not yet
			return fmt.Errorf("sign of life: %w (%w)", ErrUnavailable, err)
		case kv.Version == 0:
			p.logger.Warn("the group took this peer for dead", "silent for", time.Since(p.sentAlive()))
			p.finish(ErrFenced)
			return ErrFenced
		}
		// Nobody else puts it: it is this one, or an earlier one of unknown outcome.
		p.beaten, sent, err = kv.Version-1, asked.Add(-kv.Age), nil
	}
	if err != nil {
		return fmt.Errorf("sign of life: %w (%w)", ErrUnavailable, err)
	}
	p.beaten++
	p.mu.Lock()
	silent := sent.Sub(p.alive)
	if p.cfg.Beside != nil && time.Since(p.alive) >= p.cfg.Session {
		clear(p.held) // Assignment was empty. What is filled again begins where the group is now, also beside the keys
	}
	switch {
	case p.alive.IsZero():
		p.steady = sent
	case silent > p.cfg.Session/2:
		p.steady, p.wait = sent, p.cfg.Session
	}
	p.alive = sent
	p.mu.Unlock()
	if silent >= p.cfg.Session {
		p.notify() // Assignment was empty
	}
	return nil
}

// meet reads the group's state and, where it does not fit those who are alive and their topics, changes it. With all set it finds out
// who is alive: one trip more.
func (p *Peer) meet(ctx context.Context, all bool) error {
	for range peerTries {
		r, err := p.read(ctx)
		if err != nil {
			return err
		}
		joining := p.roster().version == 0
		if _, member := r.find(p.id); !member && !joining {
			p.adopt(r)
			return ErrFenced
		}
		next, news, err := p.plan(ctx, r, all)
		if err != nil {
			return err
		}
		if !next.same(r) || len(news.Puts) > 0 {
			next, err = p.write(ctx, next, news)
		}
		switch {
		case err == nil:
			if _, member := next.find(p.id); !member && joining {
				return fmt.Errorf("%w: it has %d members, the most there may be", ErrFull, len(next.members))
			}
			p.adopt(next)
			return nil
		case errors.Is(err, eventlog.ErrStale), errors.Is(err, eventlog.ErrUnsure): // what the store holds decides
		default:
			return err
		}
	}
	return fmt.Errorf("%w: the group changed %d times meanwhile", ErrUnavailable, peerTries)
}

// read reads the group's state: one trip, as a rule.
func (p *Peer) read(ctx context.Context) (roster, error) {
	r, err := readRoster(ctx, p.log, p.cfg.Group)
	if joined := p.roster().version > 0; joined && errors.Is(err, ErrInconsistentProtocol) {
		return r, nil // the peers were taken for dead, all of them, and it is not one of these members
	}
	return r, err
}

// plan is how the group should look, and the checks and puts of signs of life that belong to it.
func (p *Peer) plan(ctx context.Context, r roster, all bool) (next roster, news eventlog.Entry, err error) {
	next = r
	if all {
		// The signs are read after the state. So a member in the state whose sign is not there has none.
		signs, err := rollCall(ctx, p.log, p.cfg.Group)
		if err != nil {
			return r, news, fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
		next.members, news = p.living(r.members, signs)
	}
	topics, err := p.topics(ctx, next)
	if err != nil {
		return r, news, err
	}
	if !all && r.version == p.fits && slices.Equal(topics, p.fitted) {
		return r, news, nil
	}
	total := 0
	for _, t := range topics {
		total += t.partitions
	}
	if total > partitionsMax {
		return r, news, fmt.Errorf("%w: its topics have %d partitions, more than %d: read them with several groups", ErrTooLarge, total, partitionsMax)
	}
	next.members = settled(next.members, topics)
	if next.same(r) {
		p.fits, p.fitted = r.version, topics
	}
	return next, news, nil
}

// settled arranges twice: the first round gives every partition that somebody reads a holder, and so a third would change nothing.
func settled(members []seat, topics []topicSize) []seat {
	return arrange(arrange(members, topics), topics)
}

// living tells the members that are alive, newcomers included. A sign of life that ends with this must be the last one: that is checked.
func (p *Peer) living(members []seat, signs []sign) (alive []seat, news eventlog.Entry) {
	// A full group judges at once: else newcomers that do not live long could never make room.
	full := len(signs) > peersMax
	dead := func(s sign) bool { return s.dead() && s.id != p.id && (full || p.heardOut(s)) }
	last := make(map[string]sign)
	for _, s := range signs {
		last[s.id] = s
	}
	forget := func(s sign) {
		key := memberKey(p.cfg.Group, s.id)
		news.Checks = append(news.Checks, eventlog.Check{Key: key, Version: s.version})
		news.Puts = append(news.Puts, eventlog.Put{Key: key, Version: s.version + 1})
	}
	for _, m := range members {
		s, there := last[m.id]
		delete(last, m.id)
		switch {
		case there && dead(s):
			p.logger.Warn("another peer is taken for dead: it was silent for longer than its session", "other", m.id, "silent", s.age, "partitions", len(m.own)+len(m.revoking))
			forget(s)
		case there:
			alive = append(alive, m)
		}
	}
	for _, s := range signs {
		switch _, is := last[s.id]; {
		case !is: // a member
		case dead(s):
			forget(s) // it died before it was one
		case (!s.dead() || s.id == p.id) && len(alive) < peersMax:
			alive = append(alive, seat{id: s.id, about: s.about})
		}
	}
	slices.SortFunc(alive, bySeatID)
	return alive, news
}

// heardOut reports whether the other peer, if it is alive, had time to speak up. For where this one could not give signs of life,
// or has only just begun to, the store was perhaps away for all. A living peer gives three signs a session.
func (p *Peer) heardOut(s sign) bool {
	return time.Since(p.steady) >= max(p.wait, s.session()/2)
}

// topics are the topics that members read, as far as they are there. A state that knows more of them than this process makes it
// read the catalog again.
func (p *Peer) topics(ctx context.Context, r roster) ([]topicSize, error) {
	topics := p.known(r)
	if r.version == p.refreshed || r.fit(topics) {
		return topics, nil
	}
	if err := p.log.RefreshTopics(ctx); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	p.refreshed = r.version
	return p.known(r), nil
}

func (p *Peer) known(r roster) (out []topicSize) {
	names := make(map[string]bool)
	for _, m := range r.members {
		for _, name := range m.about.Topics {
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

// fit reports whether all that members have is in the topics.
func (r roster) fit(topics []topicSize) bool {
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

func (r roster) same(o roster) bool {
	return slices.EqualFunc(r.members, o.members, func(a, b seat) bool {
		return a.id == b.id && slices.Equal(a.own, b.own) && slices.Equal(a.revoking, b.revoking)
	})
}

// write puts the next generation, if the group is still at the version that it was made from.
func (p *Peer) write(ctx context.Context, next roster, with eventlog.Entry) (roster, error) {
	before := next.version
	next.generation++
	next.version = before.Next()
	value, err := next.encode(p.cfg.Group)
	if err != nil {
		return next, err
	}
	if sign := next.lapsed; sign != nil {
		next.lapsed = nil
		with.Checks = append(with.Checks, eventlog.Check{Key: sign.Key, Version: sign.Version}) // nobody came back
		if sign.Version > 0 {
			with.Puts = append(with.Puts, eventlog.Put{Key: sign.Key, Version: sign.Version + 1})
		}
	}
	with.Checks = append(with.Checks, eventlog.Check{Key: StateKey(p.cfg.Group), Version: before})
	with.Puts = append(with.Puts, eventlog.Put{Key: StateKey(p.cfg.Group), Version: next.version, Value: value})
	_, err = p.log.Append(ctx, with)
	switch {
	case err == nil:
		p.logger.Info("group has a new generation", "generation", next.generation, "members", len(next.members))
		meetings.wake(p)
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
		err = fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	return next, err
}

// adopt takes the store's word. What the peer lost goes at once; what it was given waits for fill.
func (p *Peer) adopt(r roster) {
	me, member := r.find(p.id)
	if !member {
		p.logger.Warn("the group goes on without this peer: it was silent for too long")
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

func (p *Peer) roster() roster {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.group
}

// change edits the members and arranges them anew, from the state that is known, or a newer one when that is stale: one trip. Edit reports
// whether there is something to do. ErrFenced: the peer is not a member any more.
func (p *Peer) change(ctx context.Context, edit func([]seat) ([]seat, bool), puts ...eventlog.Put) error {
	r := p.roster()
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
		next.members = settled(members, topics)
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
	return fmt.Errorf("%w: the group changed %d times meanwhile", ErrUnavailable, peerTries)
}

func (p *Peer) leave(ctx context.Context) error {
	err := p.change(ctx, func(members []seat) ([]seat, bool) {
		return slices.DeleteFunc(members, func(s seat) bool { return s.id == p.id }), true
	}, eventlog.Put{Key: memberKey(p.cfg.Group, p.id)})
	if errors.Is(err, ErrFenced) { // not a member: only its sign of life is left, perhaps
		_, err = p.log.Append(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: memberKey(p.cfg.Group, p.id)}}})
	}
	return err
}

func (p *Peer) release(ctx context.Context, tps []TopicPartition) error {
	me, _ := p.roster().find(p.id)
	if p.ended() != nil || !slices.ContainsFunc(tps, me.has) {
		return nil
	}
	before := p.hide(tps)
	given := func(tp TopicPartition) bool { return slices.Contains(tps, tp) }
	err := p.change(ctx, func(members []seat) ([]seat, bool) {
		i := slices.IndexFunc(members, func(s seat) bool { return s.id == p.id })
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
	poke(p.wake) // what it got instead must be filled
	p.notify()
	return err
}

// hide takes partitions out of the assignment: got again, each is another.
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

func jitter(d time.Duration) time.Duration { return d*7/8 + rand.N(max(1, d/4)) }
