package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// roster is what a peer or a host needs in order to change the members of its group and their
// partitions.
type roster struct {
	log    *eventlog.Log
	among  *register // the peers and hosts of this process
	census *census   // of the groups in the store
	others silentFor // of members that have a coordinator
	name   string    // of the group
	id     string    // of its heartbeat key
	hosts  bool      // it is a host's
	most   int       // limits.PartitionsMax
	by     string    // as Join.By
	logger *slog.Logger
	wake   chan struct{} // has a value when the group is to be read now
	turn   chan struct{} // a lock: has a value while nobody reads or changes the group through this roster

	graceFrom time.Time     // when the grace period began: since then heartbeats have been in time; used only by JoinPeer, Peer.Run and host.run
	grace     time.Duration // how long after graceFrom nobody is evicted; used likewise

	silent eventlog.Silence         // of the group's heartbeats; guarded by turn
	dead   map[string]time.Duration // how long the hosts were silent that are to lose their members, by id; guarded by turn

	plannedVersion eventlog.Version // the version of the state that was last found to need no change for plannedTopics; guarded by turn
	plannedTopics  []topicSize      // guarded by turn
	refreshed      eventlog.Version // the version of the state for which the catalog was read again; guarded by turn
}

func (c *Coordinator) newRoster(group, id, by string) roster {
	o := roster{
		log: c.log, among: &c.peers, census: &c.census, others: c.silentFor, name: group, id: id, by: by, most: c.cfg.limits.PartitionsMax,
		logger: c.logger.With("group", group, "peer", id), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	o.turn <- struct{}{}
	return o
}

// take waits for the turn.
func (o *roster) take(ctx context.Context) error {
	select {
	case <-o.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("group %q: %w: gave up while another call changed the group (%w)", o.name, ErrUnavailable, context.Cause(ctx))
	}
}

func (o *roster) giveTurn() { o.turn <- struct{}{} }

// change applies edit, reassigns and commits: one store call if r, the known state, is current;
// otherwise it reads and tries again. edit returns false if there is nothing to do; its error ends
// the attempts. known is told each state that was read or written. with is committed together with
// the change. The caller has the turn.
func (o *roster) change(ctx context.Context, r membership, edit func([]peerMember) (next []peerMember, needed bool, err error), known func(membership), with eventlog.Entry) error {
	for range peerTries {
		next := r
		members, needed, err := edit(slices.Clone(r.members))
		if err != nil || !needed {
			return err
		}
		next.members = members
		topics, err := o.topics(ctx, next)
		if err == nil {
			err = o.limited(topics, r)
		}
		if err != nil {
			return err
		}
		next.members = assignStable(members, topics)
		next, err = o.write(ctx, next, with)
		if err == nil {
			known(next)
			return nil
		}
		if !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
			return err
		}
		var readErr error
		r, readErr = readMembership(ctx, o.log, o.name, o.others)
		switch {
		case errors.Is(readErr, ErrInconsistentProtocol): // the group is of the classic protocol now, so this peer or host has no members in it any more
			known(membership{})
			return readErr
		case readErr != nil && errors.Is(err, eventlog.ErrUnsure):
			return fmt.Errorf("%w (%v)", err, readErr)
		case readErr != nil:
			return readErr
		}
		known(r)
	}
	return fmt.Errorf("%w: gave up after %d attempts: other members changed the group each time", ErrUnavailable, peerTries)
}

// plan returns the group's next state, and the checks and puts on heartbeat keys that must be
// committed with it.
func (o *roster) plan(ctx context.Context, r membership, checkMembers bool) (next membership, heartbeats eventlog.Entry, err error) {
	next = r
	if checkMembers {
		// The heartbeats are read after the state: a member without a heartbeat key was evicted or
		// has left.
		asked := time.Now()
		beats, err := listHeartbeats(ctx, o.log, o.name, o.silent.Of)
		if err != nil {
			return r, heartbeats, fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
		o.silent.Forget(asked)
		next.members, heartbeats = o.liveMembers(r.members, beats)
	}
	topics, err := o.topics(ctx, next)
	if err != nil {
		return r, heartbeats, err
	}
	if !checkMembers && r.version == o.plannedVersion && slices.Equal(topics, o.plannedTopics) {
		return r, heartbeats, nil
	}
	if err := o.limited(topics, r); err != nil {
		return r, heartbeats, err
	}
	next.members = assignStable(next.members, topics)
	if next.same(r) {
		o.plannedVersion, o.plannedTopics = r.version, topics
	}
	return next, heartbeats, nil
}

// limited refuses topics that take a group above limits.PartitionsMax. A group whose topics have
// grown above it goes on with those that it had before: its members may leave.
func (o *roster) limited(topics []topicSize, before membership) error {
	n := partitionsOf(topics)
	if n <= o.most || n <= partitionsOf(o.known(before)) {
		return nil
	}
	return fmt.Errorf("%w: the group's topics have %d partitions, the limit is %d: split the topics over several groups", ErrTooLarge, n, o.most)
}

func partitionsOf(topics []topicSize) (n int) {
	for _, t := range topics {
		n += t.partitions
	}
	return n
}

// assignStable runs assignPartitions twice: after the first run every subscribed partition has a
// holder, so that a third run would change nothing.
func assignStable(members []peerMember, topics []topicSize) []peerMember {
	return assignPartitions(assignPartitions(members, topics), topics)
}

// liveMembers returns the members with a recent heartbeat, and new peers. A host also keeps the
// members of dead hosts, as its own. For each evicted peer and each dead host it adds a put that
// deletes its heartbeat key, and a check that there has not been another heartbeat.
func (o *roster) liveMembers(members []peerMember, beats []heartbeat) (alive []peerMember, heartbeats eventlog.Entry) {
	// A full group evicts without the grace period: otherwise short-lived joiners could fill it for
	// good.
	full := len(beats) > peersMax
	dead := func(s heartbeat) bool { return s.dead() && s.id != o.id && (full || o.graceElapsed(s)) }
	o.dead = make(map[string]time.Duration)
	last := make(map[string]heartbeat)
	for _, s := range beats {
		last[s.id] = s
	}
	forget := func(s heartbeat) {
		key := memberKey(o.name, s.id)
		heartbeats.Checks = append(heartbeats.Checks, eventlog.Check{Key: key, Version: s.version})
		heartbeats.Puts = append(heartbeats.Puts, eventlog.Put{Key: key, Version: s.version + 1})
	}
	for _, m := range members {
		s, there := last[m.id]
		if m.kafka.host != "" { // its heartbeats are its host's
			s, there = last[m.kafka.host]
			switch {
			case there && dead(s) && o.hosts: // its broker's end is no reason for its own, see host.sessionLeft
				m.kafka.host, o.dead[s.id] = o.id, s.age
				alive = append(alive, m)
			case there && dead(s):
				o.logger.Warn("evicting a member: the broker that it spoke to sent no heartbeat within its session timeout", "other", m.id, "silent", s.age, "partitions", len(m.own)+len(m.revoking))
			case there || m.kafka.host == o.id:
				alive = append(alive, m)
			}
			continue
		}
		delete(last, m.id)
		switch {
		case there && dead(s):
			o.logger.Warn("evicting a member: it sent no heartbeat within its session timeout", "other", m.id, "silent", s.age, "partitions", len(m.own)+len(m.revoking))
			forget(s)
		case there:
			alive = append(alive, m)
		}
	}
	for _, s := range beats {
		switch _, is := last[s.id]; {
		case !is: // a member
		case dead(s):
			forget(s) // it died before it became a member, or was a host
		case s.info.Hosts:
		case (!s.dead() || s.id == o.id) && len(alive) < peersMax:
			alive = append(alive, peerMember{id: s.id, info: s.info})
		}
	}
	slices.SortFunc(alive, byMemberID)
	return alive, heartbeats
}

// graceElapsed reports whether a live peer would have sent a heartbeat by now. After this peer's
// own heartbeats failed, or just after its start, the store may have been down for everybody. A
// live peer sends three per session.
func (o *roster) graceElapsed(s heartbeat) bool {
	return time.Since(o.graceFrom) >= max(o.grace, s.session()/2)
}

// topics returns the existing topics that members subscribe to. If the state assigns a partition
// that this process does not know, it refreshes the catalog first.
func (o *roster) topics(ctx context.Context, r membership) ([]topicSize, error) {
	topics := o.known(r)
	if r.version == o.refreshed || r.covers(topics) {
		return topics, nil
	}
	if err := o.log.RefreshTopics(ctx); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	o.refreshed = r.version
	return o.known(r), nil
}

func (o *roster) known(r membership) []topicSize { return r.topics(o.log) }

// topics returns the topics that members read, or still have partitions of, as this process knows
// them.
func (r membership) topics(log *eventlog.Log) (out []topicSize) {
	names := make(map[string]bool)
	for _, m := range r.members {
		for _, name := range m.info.Topics {
			names[name] = true
		}
	}
	for _, m := range r.members { // members may still have partitions of topics that they no longer read
		for id := range m.names {
			if topic, err := log.TopicByID(id); err == nil {
				names[topic.Name] = true
			}
		}
	}
	all := log.Topics()
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
func (o *roster) write(ctx context.Context, next membership, with eventlog.Entry) (membership, error) {
	before := next.version
	next.generation++
	next.version, next.members = before.Next(), slices.Clone(next.members)
	grantedBy(next.generation, next.members)
	if before == 0 {
		next.maker = o.by
	}
	value, err := next.encode(o.name)
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
	if hosts := next.hasHosted(); hosts != next.hosted { // see hostedProtocol
		put := eventlog.Put{Key: ownerKey(o.name), Version: eventlog.Version(0).Next()}
		if hosts {
			put.Value = ownerInfo
		}
		with.Puts = append(slices.DeleteFunc(slices.Clone(with.Puts), func(p eventlog.Put) bool { return p.Key == put.Key }), put)
		next.hosted = hosts
	}
	with.Checks = append(with.Checks, eventlog.Check{Key: StateKey(o.name), Version: before})
	with.Puts = append(with.Puts, eventlog.Put{Key: StateKey(o.name), Version: next.version, Value: value})
	_, err = o.log.Append(ctx, with)
	switch {
	case err == nil:
		o.logger.Info("group has a new generation", "generation", next.generation, "members", len(next.members))
		o.among.wakeOthers(o.name, o.wake)
		if before == 0 {
			o.census.count(next.maker, 1)
		}
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
		err = fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	return next, err
}
