package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
)

// A request may name any number of groups. What it needs of them is read and written together: a
// few store calls for hundreds of groups.

const (
	// severalMax is how many groups one request deletes at a time; it holds their locks meanwhile.
	severalMax = 256
	// severalBytes is about how many bytes of states are described at a time.
	severalBytes = 4 << 20
)

// loaded is a group's state as it was read. Version 0: there is none.
type loaded struct {
	name  string
	kv    eventlog.KeyValue // without the value
	state storedState
}

func parseState(name string, kv eventlog.KeyValue) (loaded, error) {
	l := loaded{name: name, kv: kv}
	l.kv.Value = nil
	if kv.Version == 0 {
		return l, nil
	}
	if err := json.Unmarshal(kv.Value, &l.state); err != nil {
		return l, fmt.Errorf("load group %q: key %q: %w", name, kv.Key, err)
	}
	return l, nil
}

// signs are the heartbeats that tell whether groups still have members.
type signs struct {
	asked  time.Time                    // when the reading began
	owners map[string]eventlog.KeyValue // of groups with a coordinator, by group
	peers  map[string][]heartbeat       // of groups of peers, by group
}

// signsOf reads the heartbeats of groups that have members: at most two store calls, and one per
// thousand peers.
func (c *Coordinator) signsOf(ctx context.Context, all ...loaded) (s signs, err error) {
	s = signs{asked: time.Now(), owners: make(map[string]eventlog.KeyValue)}
	var keys, names, peers []string // keys are those of the owners of names
	for _, l := range all {
		switch {
		case len(l.state.Members) == 0:
		case l.state.ProtocolType == hostedProtocol:
			peers, keys, names = append(peers, l.name), append(keys, ownerKey(l.name)), append(names, l.name)
		case l.state.ProtocolType == peerProtocol:
			peers = append(peers, l.name)
		default:
			keys, names = append(keys, ownerKey(l.name)), append(names, l.name)
		}
	}
	err = c.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		s.owners[names[0]], names = kv, names[1:]
		return nil
	})
	if err == nil {
		s.peers, err = c.heartbeatsOf(ctx, peers)
	}
	return s, err
}

// heartbeatsOf reads the heartbeats of the peers of groups, by group: one store call per thousand.
func (c *Coordinator) heartbeatsOf(ctx context.Context, groups []string) (map[string][]heartbeat, error) {
	beats, asked := make(map[string][]heartbeat), time.Now()
	var prefixes []string
	for _, name := range groups {
		prefixes = append(prefixes, memberKeysOf(name))
	}
	err := c.log.ListEach(ctx, memberPrefix, prefixes, 1000, nil, func(kv eventlog.KeyValue) error {
		name, s, err := parseHeartbeat(kv)
		s.age = c.silentFor(kv, asked)
		beats[name] = append(beats[name], s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats of %d groups: %w", len(groups), err)
	}
	return beats, nil
}

// Describe returns a group in full, or ErrNotFound. Metadata and assignments of members are shown
// once the group is stable, as in Kafka.
func (c *Coordinator) Describe(ctx context.Context, name string) (d Described, err error) {
	c.DescribeEach(ctx, []string{name}, func(found Described, why error) bool {
		d, err = found, why
		return true
	})
	return d, err
}

// DescribeEach is Describe for any number of groups, in their order. For each thousand groups, or 4
// MiB of their states, it costs one store call, or three if some of them have members. visit ends
// it with false.
func (c *Coordinator) DescribeEach(ctx context.Context, names []string, visit func(Described, error) bool) {
	for len(names) > 0 {
		page, s, err := c.readGroups(ctx, names[:min(len(names), 1000)])
		if err != nil {
			page = nil // the others would not be read, either
			for _, name := range names {
				page = append(page, statePage{loaded{name: name}, fmt.Errorf("load group %q: %w (%w)", name, ErrLoading, err)})
			}
		}
		for _, p := range page {
			d, err := Described{}, p.err
			if err == nil {
				d, err = c.describe(p.loaded, s)
			}
			if !visit(d, err) {
				return
			}
		}
		names = names[len(page):]
	}
}

// readGroups reads states as readStates does, and the heartbeats of their members.
func (c *Coordinator) readGroups(ctx context.Context, names []string) (page []statePage, s signs, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if page, err = c.readStates(ctx, names); err != nil {
		return nil, s, err
	}
	var all []loaded
	for _, p := range page {
		if len(p.state.Members) > 0 {
			all = append(all, p.loaded)
		}
	}
	s, err = c.signsOf(ctx, all...)
	return page, s, err
}

// statePage is a state that was read. Err: the name is invalid, or the state is damaged.
type statePage struct {
	loaded
	err error
}

// readStates reads the states of groups, in their order, until they have severalBytes: it may
// return fewer than are asked for, and at least one.
func (c *Coordinator) readStates(ctx context.Context, names []string) (page []statePage, err error) {
	page = make([]statePage, 0, len(names))
	keys := make([]string, 0, len(names))
	for _, name := range names {
		if c.serves(name) == nil {
			keys = append(keys, StateKey(name))
		}
	}
	enough, bytes := errors.New("enough"), 0
	add := func(name string, kv eventlog.KeyValue) {
		l, err := parseState(name, kv)
		page = append(page, statePage{l, err})
	}
	refuse := func() { // names that have no key
		for len(page) < len(names) {
			err := c.serves(names[len(page)])
			if err == nil {
				return
			}
			page = append(page, statePage{loaded{name: names[len(page)]}, err})
		}
	}
	refuse()
	err = c.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if bytes += len(kv.Value); bytes > severalBytes && bytes > len(kv.Value) {
			return enough
		}
		add(names[len(page)], kv)
		refuse()
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return page, err
}

// describe describes a group as it is in memory, if this process coordinates it, otherwise as it
// was read.
func (c *Coordinator) describe(l loaded, s signs) (Described, error) {
	c.mu.Lock()
	g := c.groups[l.name]
	if g != nil {
		c.use(g)
	}
	c.mu.Unlock()
	if g != nil {
		<-g.slot
		defer g.unlock()
	}
	none := func() (Described, error) {
		return Described{Group: l.name, State: Dead}, fmt.Errorf("group %q: %w", l.name, ErrNotFound)
	}
	if g == nil && l.kv.Version == 0 {
		return none()
	}
	if g == nil || !g.owned || g.version < l.kv.Version { // what other processes did since is not in memory
		g = &group{c: c, name: l.name}
		g.adopt(l, s)
	}
	if g.version == 0 && g.state == Empty {
		return none()
	}
	d := Described{Group: l.name, State: g.state, Generation: g.generation, ProtocolType: g.protocolType, Peers: g.peers, Consumer: g.hosted}
	var peers map[string]Member
	if g.peers {
		var err error
		if peers, d.Assignor, err = c.describePeers(l); err != nil {
			return Described{Group: l.name, State: Dead}, err
		}
	}
	for _, m := range g.byID() {
		o := peers[m.id]
		o.ID, o.Instance, o.ClientID, o.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		if g.state == Stable || g.peers {
			d.Protocol = g.protocol
			o.Metadata, o.Assignment = m.metadata(g.protocol), m.assignment
		}
		d.Members = append(d.Members, o)
	}
	return d, nil
}

// Delete removes a group without members, and all its offsets, in one entry. Members that have been
// silent for longer than their session, by the store's clock, do not count.
func (c *Coordinator) Delete(ctx context.Context, name string) error {
	return c.DeleteEach(ctx, []string{name})[0]
}

// DeleteEach is Delete for any number of groups, each of which may fail by itself: about ten store
// calls for 256 groups, and one per thousand offsets. The names differ.
func (c *Coordinator) DeleteEach(ctx context.Context, names []string) []error {
	errs := make(map[string]error)
	for some := range slices.Chunk(slices.Sorted(slices.Values(names)), severalMax) {
		for n := 1; len(some) > 0; n++ {
			failed := c.deleteOnce(ctx, some)
			var again []string
			for _, name := range some {
				err := failed[name]
				errs[name] = err
				if n < retriesMax && ctx.Err() == nil && errors.Is(err, ErrMoved) && errors.Is(err, eventlog.ErrStale) {
					again = append(again, name)
				}
			}
			some = again
		}
	}
	out := make([]error, len(names))
	for i, name := range names {
		out[i] = errs[name]
	}
	return out
}

// deleteOnce tries to delete groups, and returns why some are not deleted. It locks them in the
// order of their names, so that two requests never wait for each other.
func (c *Coordinator) deleteOnce(ctx context.Context, names []string) map[string]error {
	errs := make(map[string]error)
	var held, left []*group
	defer func() {
		for _, g := range held {
			g.unlock()
		}
	}()
	for _, name := range names {
		err := c.mayChange(name)
		var g *group
		if err == nil {
			g, err = c.hold(ctx, name)
		}
		if errs[name] = err; err == nil {
			held = append(held, g)
		}
	}
	left = slices.Clone(held)
	each := func(try func(*group) error) {
		left = slices.DeleteFunc(left, func(g *group) bool {
			errs[g.name] = try(g)
			return errs[g.name] != nil
		})
	}
	together := func(try func(ctx context.Context, all []*group) error) {
		if err := try(ctx, left); err != nil {
			each(func(g *group) error { return fmt.Errorf("delete group %q: %w", g.name, err) })
		}
	}
	finish := make(map[*group]func() error)
	wait := func(g *group) error { return finish[g]() }

	loads := make(map[string]error)
	together(func(ctx context.Context, all []*group) (err error) { loads, err = c.refreshEach(ctx, all); return err })
	each(func(g *group) error {
		switch {
		case loads[g.name] != nil:
			return loads[g.name]
		case g.state != Empty:
			return fmt.Errorf("delete group %q: %w: it has %d members", g.name, ErrNotEmpty, len(g.members))
		case g.version == 0:
			return fmt.Errorf("delete group %q: %w", g.name, ErrNotFound)
		}
		return nil
	})
	together(func(ctx context.Context, all []*group) error { return c.forgetBeside(ctx, namesOf(all), nil) })
	// Commits may be in flight. Once a new version is stored, a commit either is in the store, and
	// is seen below, or will be refused.
	each(func(g *group) (err error) { finish[g], err = g.saveLater(ctx); return err })
	each(wait)
	offsets := make(map[string][]Committed)
	together(func(ctx context.Context, all []*group) (err error) { offsets, err = c.offsetsOf(ctx, all); return err })
	beats := make(map[string][]heartbeat)
	together(func(ctx context.Context, all []*group) (err error) {
		if beats, err = c.heartbeatsOf(ctx, namesOf(all)); err != nil {
			err = fmt.Errorf("%w (%w)", ErrLoading, err)
		}
		return err
	})
	each(func(g *group) error {
		finish[g] = g.eraseLater(ctx, offsets[g.name], beats[g.name])
		return nil
	})
	each(wait)
	return errs
}

func namesOf(all []*group) (names []string) {
	for _, g := range all {
		names = append(names, g.name)
	}
	return names
}

// refreshEach is refresh for groups that are all locked. What it restores is only good for deciding
// which groups may be deleted: of a group's members it takes no more than their ids and sessions.
func (c *Coordinator) refreshEach(ctx context.Context, all []*group) (failed map[string]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	failed = make(map[string]error)
	var keys []string
	for _, g := range all {
		keys = append(keys, StateKey(g.name))
	}
	var found []loaded
	var of []*group
	n := 0
	err = c.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		g := all[n]
		n++
		if kv.Version == g.version && (g.owned || g.version == 0 && len(g.members) == 0) { // it is as it is here
			return nil
		}
		if g.owned {
			c.logger.Info("another process coordinates the group now", "group", g.name)
		}
		l, err := parseState(g.name, kv)
		for i, m := range l.state.Members {
			l.state.Members[i] = storedMember{ID: m.ID, SessionMS: m.SessionMS}
		}
		if failed[g.name] = err; err == nil {
			found, of = append(found, l), append(of, g)
		}
		return nil
	})
	var s signs
	if err == nil {
		s, err = c.signsOf(ctx, found...)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrLoading, err)
	}
	for i, l := range found {
		g := of[i]
		if g.adopt(l, s); g.state != Empty {
			failed[g.name] = fmt.Errorf("delete group %q: %w: it has %d members", g.name, ErrNotEmpty, len(g.members))
			g.reset() // nobody else may see members without their assignments
		}
	}
	return failed, nil
}

// offsetsOf reads all offsets of groups, and where they began: a few store calls, and one per
// thousand.
func (c *Coordinator) offsetsOf(ctx context.Context, all []*group) (map[string][]Committed, error) {
	offsets := make(map[string][]Committed)
	var committed, starts []string
	for _, g := range all {
		committed, starts = append(committed, offsetKeysOf(g.name)), append(starts, startKeysOf(g.name))
	}
	note := func(parse func(eventlog.KeyValue) (string, stored, error)) func(eventlog.KeyValue) error {
		return func(kv eventlog.KeyValue) error {
			name, o, err := parse(kv)
			offsets[name] = append(offsets[name], o.Committed)
			return err
		}
	}
	err := c.log.ListEach(ctx, offsetPrefix, committed, 1000, nil, note(parseOffset))
	if err == nil {
		err = c.log.ListEach(ctx, startPrefix, starts, startsPage, nil, note(parseStart))
	}
	if err != nil {
		return nil, fmt.Errorf("load offsets: %w (%w)", ErrLoading, err)
	}
	return offsets, nil
}

// eraseLater submits the removal of a group without members, these offsets, and the heartbeat keys
// of dead peers from the store. The function that it returns waits for it.
func (g *group) eraseLater(ctx context.Context, offsets []Committed, beats []heartbeat) func() error {
	g.deadPeers = slices.DeleteFunc(beats, func(s heartbeat) bool { return !g.c.isDead(s) }) // one that is alive is about to join
	// The version of a put that forgets a key only says that the key moves forward.
	e := eventlog.Entry{Puts: []eventlog.Put{{Key: StateKey(g.name), Version: g.version + 1}}}
	g.forgetGhosts(&e)
	for _, o := range offsets {
		e.Puts = append(e.Puts, eventlog.Put{Key: OffsetKey(g.name, o.TopicPartition), Version: g.version + 1})
	}
	told, has, err := audit.Of(g.c.log).Batch(ctx, StateKey(g.name), audit.Event{Verb: audit.GroupDelete, Object: g.name, Before: map[string]int{"offsets": len(offsets)}})
	if err != nil {
		return func() error { return fmt.Errorf("delete group %q: %w", g.name, err) }
	}
	if has {
		e.Batches = append(e.Batches, told)
	}
	written, maker := g.writeLater(ctx, e), g.maker
	return func() error {
		if err := written(); err != nil {
			return err
		}
		g.reset()
		g.c.census.count(maker, -1)
		return nil
	}
}
