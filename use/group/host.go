package group

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// host keeps the members of one group that use this process as their Kafka broker: those of the
// consumer protocol (KIP-848) and, while a group changes over, those of the classic protocol. The
// group's state lists them beside the peers, which are members without a broker; the same rules
// decide who has which partition. What is the host's own: it hears its members' heartbeats, so that
// these cost the store nothing, and it has one heartbeat key, one poll and one writer for all of
// them. What its members want while a write is in progress goes into the next one.
//
//	group/member/<group>/<host>   the host's heartbeat. A member in the group's state names its host
//
// If a host sends no heartbeat for hostSession, its members are adopted by another host, or evicted
// by a peer: whichever finds that first. Most members whose broker is gone ask another broker
// before that, and the host there takes over those that ask, many with one write.
type host struct {
	roster
	c     *Coordinator
	users int // guarded by c.hosting.mu

	lastBeat eventlog.Version // of its last heartbeat; guarded by turn

	mu      sync.Mutex // guards what follows
	group   membership // as last read from the store; version 0: unknown
	members map[string]*hosted
	beaten  time.Time        // when the last heartbeat that the store took was sent
	asOf    time.Time        // see Coordinator.AsOf
	unsure  eventlog.Version // a commit that checks this version may still be in flight
	wishes  []*wish
	joining map[string]joining // joins on their way, by member id
	counted usages             // guarded by c.mu
}

// hosted is what a host remembers of one of its members. A new host remembers nothing.
type hosted struct {
	epoch    int32                    // the member epoch of the last answer; 0: not known yet
	previous int32                    // the epoch that the member showed when it was told epoch: the answers since then may be lost
	repeated int32                    // the lower epoch that the last answer said, see hosted.later; 0: it said epoch
	told     []TopicPartition         // what this host has told the member that it has; nil: nothing yet
	toldAt   map[TopicPartition]int32 // the epoch of the first answer that told it of a partition
	since    map[TopicPartition]int32 // the generation that gave it each partition that it has; 0: not known
	from     int32                    // the generation in which this host first saw the member: another host may have told the member of the partitions that it had then
	deadline time.Time                // when its session ends
	giveUpBy time.Time                // when it is evicted, unless it has given up by then what it must revoke (in the classic protocol: joined again); zero: nothing is asked of it
	giveUp   []TopicPartition         // what it had to revoke when giveUpBy was set: once it has given up all of these, giveUpBy is set anew for the others
	evicted  bool                     // its eviction is being written; its requests are answered as if it had been evicted
	offers   []Protocol               // of a member of the classic protocol, from its last join; nil: not known, it must join again
}

// wish is one member's change of the group, which waits for the host's next write.
type wish struct {
	edit func(members []peerMember) (next []peerMember, changed bool, err error)
	done chan error
}

const (
	hostSession   = 45 * time.Second // at least: see session
	hostHeartbeat = 5 * time.Second
	hostLook      = time.Second
)

// hosting is the hosts of a process, by group.
type hosting struct {
	mu      sync.Mutex // guards the rest, and every host's users
	byGroup map[string]*host
	closed  bool
	running sync.WaitGroup
}

// hostOf finds the host of a group, or makes one; done must be called after use. A host without
// members ends when nobody uses it.
func (c *Coordinator) hostOf(group, by string) (h *host, done func(), err error) {
	hs := &c.hosting
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.closed {
		return nil, nil, fmt.Errorf("group %q: %w: this broker is stopping", group, ErrMoved)
	}
	h = hs.byGroup[group]
	if h == nil {
		if len(hs.byGroup) >= c.cfg.limits.GroupsMax {
			return nil, nil, fmt.Errorf("group %q: %w: %d groups are in use, which is the limit", group, ErrUnavailable, c.cfg.limits.GroupsMax)
		}
		h = &host{roster: c.newRoster(group, "host-"+rand.Text(), by), c: c, members: make(map[string]*hosted), joining: make(map[string]joining), beaten: time.Now()}
		h.hosts = true
		if hs.byGroup == nil {
			hs.byGroup = make(map[string]*host)
		}
		hs.byGroup[group] = h
		hs.running.Go(h.run)
	}
	h.users++
	return h, func() {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		if h.users--; h.users == 0 && !h.hasMembers() {
			poke(h.wake) // it may end
		}
	}, nil
}

// hostIfAny finds the host of a group, and makes none; nil: there is none.
func (c *Coordinator) hostIfAny(group string) *host {
	c.hosting.mu.Lock()
	defer c.hosting.mu.Unlock()
	return c.hosting.byGroup[group]
}

// endHosts ends all hosts. Their members stay in the store: the broker that they ask next adopts
// them.
func (c *Coordinator) endHosts() {
	c.hosting.mu.Lock()
	c.hosting.closed = true
	for _, h := range c.hosting.byGroup {
		poke(h.wake)
	}
	c.hosting.mu.Unlock()
	c.hosting.running.Wait()
}

// ends removes a host that has neither members nor users, or whose coordinator closes.
func (h *host) ends() bool {
	hs := &h.c.hosting
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !hs.closed && (len(h.members) > 0 || h.users > 0) {
		return false
	}
	delete(hs.byGroup, h.name)
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.replace(&h.counted, nil)
	return true
}

// run keeps the host's members in the group until it has none. It reads the group once every
// hostLook, and once every heartbeat interval it writes its heartbeat and reads the others'.
func (h *host) run() {
	defer h.among.add(h.name, h.wake)()
	var nextBeat time.Time
	changed := h.log.IncarnationChanged()
	for next := time.Now().Add(hostLook); ; next = earlier(time.Now().Add(jitter(hostLook)), nextBeat) {
		select {
		case <-h.wake:
		case <-changed:
			changed, nextBeat = h.log.IncarnationChanged(), time.Now()
		case <-time.After(time.Until(next)):
		}
		if h.ends() {
			return
		}
		due := !time.Now().Before(nextBeat)
		if due {
			nextBeat = time.Now().Add(hostHeartbeat)
		}
		if err := h.step(due); err != nil && due {
			h.logger.Warn("a broker's heartbeat for the members of a group failed; trying again", "err", err)
		}
	}
}

// session returns after how long without a heartbeat of this host others adopt or evict its
// members. Where the store takes a commit only once in a while, it has time for five (spaced).
func (h *host) session() time.Duration { return max(hostSession, 5*h.log.CommitEvery()) }

// step is one turn of run.
func (h *host) step(due bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience(h.log))
	defer cancel()
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.giveTurn()
	if !h.hasMembers() {
		return nil
	}
	var beaten time.Time
	if due {
		var err error
		if beaten, err = h.beat(ctx); err != nil {
			return err
		}
	}
	if err := h.look(ctx, due); err != nil {
		return err
	}
	if due {
		h.trust(beaten)
	}
	h.evict(ctx)
	h.giveUpUntold(ctx)
	return h.downgrade(ctx)
}

func (h *host) hasMembers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.members) > 0
}

// beatPuts are the host's heartbeat: its own key, and the one that older weirs look at. Nothing is
// checked: a host whose members were evicted finds that in the group's state.
func (h *host) beatPuts() []eventlog.Put {
	h.lastBeat = h.lastBeat.Next()
	info := storedPeer{Client: "kafka", Host: ownerHost(), SessionMS: h.session().Milliseconds(), Hosts: true, KnowsHosts: true}
	return []eventlog.Put{
		{Key: memberKey(h.name, h.id), Version: h.lastBeat, Value: info.encode()},
		{Key: ownerKey(h.name), Version: eventlog.Version(0).Next(), Value: ownerInfo},
	}
}

// beat writes the host's heartbeat, and returns when it was sent. If others may have taken its
// members before that, the host is not trusted again until it has looked.
func (h *host) beat(ctx context.Context) (sent time.Time, err error) {
	sent = time.Now()
	if _, err := h.log.SubmitUpkeep(ctx, eventlog.Entry{Puts: h.beatPuts()}).Wait(ctx); err != nil {
		return sent, fmt.Errorf("heartbeat: %w (%w)", ErrUnavailable, err)
	}
	h.mu.Lock()
	silent := sent.Sub(h.beaten)
	if h.trusted() {
		h.beaten = sent
	}
	h.mu.Unlock()
	switch {
	case h.graceFrom.IsZero():
		h.graceFrom = sent
	case silent > h.session()/2:
		h.graceFrom, h.grace = sent, h.session()
	}
	return sent, nil
}

// trust notes when the last heartbeat was sent that the store took.
func (h *host) trust(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beaten = sent
}

// look reads the group, and writes a new assignment if one is needed. With checkMembers it also
// reads the others' heartbeats. The caller has the turn.
func (h *host) look(ctx context.Context, checkMembers bool) error {
	for range peerTries {
		asked := time.Now()
		r, err := readMembership(ctx, h.log, h.name, h.others)
		if errors.Is(err, ErrInconsistentProtocol) { // the group is of the classic protocol now, so this host has no members any more
			h.adopt(membership{})
			return nil
		}
		if err != nil {
			return err
		}
		next, heartbeats, err := h.plan(ctx, r, checkMembers)
		if err != nil {
			return err
		}
		if !next.same(r) || len(heartbeats.Puts) > 0 {
			next, err = h.write(ctx, next, heartbeats)
		}
		switch {
		case err == nil:
			h.adopt(next)
			h.readAt(asked)
			return nil
		case !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure):
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d attempts: other members changed the group each time", ErrUnavailable, peerTries)
}

// readAt notes that the host has adopted the group's state as the store had it at the time asked,
// or later.
func (h *host) readAt(asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asOf = asked
}

func (h *host) isReadSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.asOf.Before(t)
}

// adopt makes r the host's view of the group. Members that were evicted, or that another host
// adopted, are forgotten.
func (h *host) adopt(r membership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := r.version != h.group.version
	if r.generation < h.group.generation { // the store was rewound to this generation: what later ones gave is lost
		for _, k := range h.members {
			clear(k.since)
			clear(k.toldAt)
			k.from = r.generation
		}
	}
	before := h.group
	h.group = r
	mine := make(map[string]bool)
	for _, m := range r.members {
		if m.kafka.host != h.id {
			continue
		}
		mine[m.id] = true
		known := h.members[m.id]
		if known == nil {
			was, _ := before.find(m.id)
			known = &hosted{deadline: time.Now().Add(h.sessionLeft(m, was.kafka.host)), since: make(map[TopicPartition]int32), toldAt: make(map[TopicPartition]int32), from: r.generation}
			h.members[m.id] = known
		}
		known.note(m, r.generation)
		if m.kafka.away { // it can give nothing up: only its session counts
			known.giveUpBy, known.giveUp = time.Time{}, nil
		}
		if news && known.untold(m) != nil {
			poke(h.wake)
		}
	}
	for id := range h.members {
		if !mine[id] {
			delete(h.members, id)
		}
	}
	if news {
		h.recount()
	}
	if len(h.members) == 0 {
		poke(h.wake) // it may end
	}
}

// sessionLeft returns how long a member that this host has taken over may stay silent. Whoever asks
// this host has its whole session from then on. A member of a dead host that has not asked has been
// silent about as long as its host, or has asked it in vain: a third of the session is time enough
// to ask another broker. The caller has the turn.
func (h *host) sessionLeft(m peerMember, before string) time.Duration {
	return max(m.session()-h.dead[before], m.session()/3)
}

// note remembers in k.since which generation gave the member each of its partitions. Among these
// are partitions that another process gave the member after the host's last look, also if the
// member is to give them up again already.
func (k *hosted) note(m peerMember, generation int32) {
	for tp := range k.since {
		if !m.has(tp) {
			delete(k.since, tp)
		}
	}
	maps.DeleteFunc(k.toldAt, func(tp TopicPartition, _ int32) bool { return !m.has(tp) })
	for _, tp := range slices.Concat(m.own, m.revoking) {
		switch _, has := k.since[tp]; {
		case has:
		case holds(k.told, tp): // it lost the partition and got it back since the host last looked, and does not know that
			k.since[tp] = 0
		case m.since[tp] == 0 && k.from < generation: // an older weir gave it the partition, after this host first saw the member
			k.since[tp] = generation
		default:
			k.since[tp] = m.since[tp]
		}
	}
}

// untold lists the partitions that a member is to give up although nobody has told it that it has
// them.
func (k *hosted) untold(m peerMember) (out []TopicPartition) {
	for _, tp := range m.revoking {
		if _, told := k.toldAt[tp]; !told && k.since[tp] > k.from {
			out = append(out, tp)
		}
	}
	return out
}

// giveUpUntold gives partitions up for the members that were never told of them. The caller has the
// turn.
func (h *host) giveUpUntold(ctx context.Context) {
	edit := func(members []peerMember) ([]peerMember, bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		changed := false
		for i, m := range members {
			if k := h.members[m.id]; k != nil && m.kafka.host == h.id {
				untold := k.untold(m)
				members[i].revoking = slices.DeleteFunc(slices.Clone(m.revoking), func(tp TopicPartition) bool { return holds(untold, tp) })
				changed = changed || len(untold) > 0
			}
		}
		return members, changed, nil
	}
	h.mu.Lock()
	members := slices.Clone(h.group.members)
	h.mu.Unlock()
	if _, needed, _ := edit(members); !needed {
		return
	}
	h.mu.Lock()
	h.wishes = append(h.wishes, &wish{edit: edit, done: make(chan error, 1)})
	h.mu.Unlock()
	h.fulfil(ctx)
}

func (s peerMember) session() time.Duration {
	return time.Duration(s.info.SessionMS) * time.Millisecond
}

// wish queues a change of the group for the next write.
func (h *host) wish(edit func([]peerMember) ([]peerMember, bool, error)) *wish {
	w := &wish{edit: edit, done: make(chan error, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wishes = append(h.wishes, w)
	return w
}

// submit queues a change of the group, and waits for the write that makes it, together with all
// other changes that are queued.
func (h *host) submit(ctx context.Context, edit func([]peerMember) ([]peerMember, bool, error)) error {
	w := h.wish(edit)
	select {
	case err := <-w.done:
		return err
	case <-h.turn:
		// The write also has other members' changes: it must not stop when this context ends.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(h.log))
		defer cancel()
		func() {
			defer h.giveTurn()
			h.fulfil(ctx)
		}()
		return <-w.done
	case <-ctx.Done():
		h.mu.Lock()
		h.wishes = slices.DeleteFunc(h.wishes, func(o *wish) bool { return o == w }) // if its write has begun, it is no longer in the list, and may still be made
		h.mu.Unlock()
		return fmt.Errorf("group %q: %w (%w)", h.name, ErrUnavailable, context.Cause(ctx))
	}
}

// fulfil makes all changes that wait, in one write. The caller has the turn.
func (h *host) fulfil(ctx context.Context) {
	h.mu.Lock()
	wishes := h.wishes
	h.wishes = nil
	h.mu.Unlock()
	if len(wishes) == 0 {
		return
	}
	for i, err := range h.makeThatFit(ctx, wishes) {
		wishes[i].done <- err
	}
}

// makeThatFit is make. If the changes are too large together, it makes each half of them by itself,
// until only those that are too large alone are refused.
func (h *host) makeThatFit(ctx context.Context, wishes []*wish) []error {
	errs := h.make(ctx, wishes)
	if len(wishes) == 1 || !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, ErrTooLarge) }) {
		return errs
	}
	half := len(wishes) / 2
	return append(h.makeThatFit(ctx, wishes[:half]), h.makeThatFit(ctx, wishes[half:])...)
}

// make makes changes in one write, and returns an error or nil for each. The caller has the turn.
func (h *host) make(ctx context.Context, wishes []*wish) []error {
	h.mu.Lock()
	r, had, trusted := h.group, len(h.members) > 0, h.trusted()
	h.mu.Unlock()
	errs := make([]error, len(wishes))
	var with eventlog.Entry
	sent := time.Now()
	if !had || !trusted { // the key comes with the first member; after a long silence others may have deleted it
		with.Puts = h.beatPuts()
	}
	changed := false // by the last attempt: without an error it was written
	err := h.change(ctx, r, func(members []peerMember) ([]peerMember, bool, error) {
		changed = false
		for i, w := range wishes {
			next, did, err := w.edit(slices.Clone(members))
			if errs[i] = err; err == nil && did {
				members, changed = next, true
			}
		}
		slices.SortFunc(members, byMemberID)
		return members, changed, nil
	}, h.adopt, with)
	if errors.Is(err, eventlog.ErrUnsure) { // asking for any of these changes again is safe
		err = fmt.Errorf("group %q: %w (%w)", h.name, ErrUnavailable, err)
	}
	if err == nil && changed && len(with.Puts) > 0 {
		h.trust(sent)
	}
	if err == nil && !h.hasMembers() && had {
		h.forgetBeat(ctx)
	}
	for i := range wishes {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// forgetBeat deletes the heartbeat's key, after the last member has left. If that fails, another
// host or a peer deletes the key when it is older than a session. The check is for a deletion of
// unknown outcome that comes late: it must not delete the heartbeat of the next member's time.
func (h *host) forgetBeat(ctx context.Context) {
	key := memberKey(h.name, h.id)
	_, err := h.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: key, Version: h.lastBeat}},
		Puts:   []eventlog.Put{{Key: key, Version: h.lastBeat + 1}},
	})
	if err != nil {
		h.logger.Debug("the heartbeat's key stays until its session ends", "err", err)
	}
}

// load reads the group if the host does not know the member. If another host has the member, this
// one takes it over: a member that asks here has found that this broker coordinates the group. It
// takes no other member of a host that is alive: those ask for themselves, or have crashed.
//
// Before a client joins that is a member of no host, load adopts the members of dead hosts. If no
// host and no peer of the group is alive, nobody else ends their sessions: they could fill the
// group, or keep the instance id that the client wants.
//
// A member that joins needs no read if the host has other members: its write, or grant before it
// refuses the member, finds out what is new. Many members that ask at once need one read.
func (h *host) load(ctx context.Context, member string, joins bool) error {
	came := time.Now()
	loaded := func() bool { return h.knows(member) || h.isReadSince(came) || joins && h.hasMembers() }
	if !loaded() {
		if err := h.read(ctx, member, joins, loaded); err != nil {
			return err
		}
	}
	elsewhere := func(m peerMember) bool { return m.id == member && h.isElsewhere(m) }
	h.mu.Lock()
	adopts := slices.ContainsFunc(h.group.members, elsewhere)
	h.mu.Unlock()
	if !adopts {
		return nil
	}
	return h.submit(ctx, h.adopting(elsewhere))
}

// read is load's reading of the group, unless it is loaded when the turn has come.
func (h *host) read(ctx context.Context, member string, joins bool, loaded func() bool) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.giveTurn()
	if loaded() {
		return nil
	}
	asked := time.Now()
	r, err := readMembership(ctx, h.log, h.name, h.others)
	if err != nil {
		return err
	}
	h.adopt(r)
	if m, is := r.find(member); joins && !(is && m.kafka.host != "") {
		if err := h.adoptOfDeadHosts(ctx, r); err != nil {
			return err
		}
	}
	h.readAt(asked)
	return nil
}

// adoptOfDeadHosts makes the members of hosts whose sessions have ended this host's. The caller has
// the turn.
func (h *host) adoptOfDeadHosts(ctx context.Context, r membership) error {
	if !slices.ContainsFunc(r.members, h.isElsewhere) {
		return nil
	}
	beats, err := listHeartbeats(ctx, h.log, h.name, h.others)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	dead := make(map[string]time.Duration) // 0: its key is gone
	for _, m := range r.members {
		if h.isElsewhere(m) {
			dead[m.kafka.host] = 0
		}
	}
	for _, s := range beats {
		if _, is := dead[s.id]; is && s.dead() {
			dead[s.id] = s.age
		} else {
			delete(dead, s.id)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	h.dead = dead
	w := h.wish(h.adopting(func(m peerMember) bool { _, is := dead[m.kafka.host]; return is }))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(h.log)) // it is for all members, as in submit
	defer cancel()
	h.fulfil(ctx)
	return <-w.done
}

// isElsewhere reports whether a member is one of another host.
func (h *host) isElsewhere(m peerMember) bool { return m.kafka.host != "" && m.kafka.host != h.id }

// adopting returns the change that makes members this host's.
func (h *host) adopting(which func(peerMember) bool) func([]peerMember) ([]peerMember, bool, error) {
	return func(members []peerMember) ([]peerMember, bool, error) {
		adopts := false
		for i, m := range members {
			if which(m) {
				members[i].kafka.host, adopts = h.id, true
			}
		}
		return members, adopts, nil
	}
}

func (h *host) knows(member string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members[member] != nil
}

// member returns what the host remembers of one of its members; nil: it is no member of this host,
// or is being evicted. h.mu is held.
func (h *host) member(id string) *hosted {
	if k := h.members[id]; k != nil && !k.evicted {
		return k
	}
	return nil
}
