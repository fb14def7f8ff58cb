package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// sweep reads every group, every committed offset, and where groups began. With mayForget set it
// deletes what has expired, and the heartbeats of peers without a group. It costs one store call
// per thousand groups, offsets and heartbeats, one per 64 places where a group began, and more for
// groups of peers and groups with something to delete. An error of one group does not stop it.
func (c *Coordinator) sweep(ctx context.Context, mayForget bool) error {
	uses, counted := make(map[string]*use), c.census.begin()
	err := c.log.ListAll(ctx, statePrefix, func(kv eventlog.KeyValue) error {
		name, u, err := c.inspect(ctx, kv)
		if err == nil {
			uses[name] = u
		}
		return c.orElse(ctx, kv.Key, err)
	})
	if err != nil {
		return err
	}
	var all tally
	for _, u := range uses {
		all.add(u.maker, 1)
	}
	counted(all)
	err = c.log.ListAll(ctx, offsetPrefix, func(kv eventlog.KeyValue) error {
		name, o, err := parseOffset(kv)
		if u := uses[name]; err == nil && u != nil {
			u.count(o)
		}
		return c.orElse(ctx, kv.Key, err)
	})
	if err != nil {
		return err
	}
	var strays []eventlog.Entry // they delete the starts (storedStart) of groups that an older version of weir has deleted
	err = c.log.ListPages(ctx, startPrefix, startsPage, nil, func(kv eventlog.KeyValue) error {
		name, o, err := parseStart(kv)
		if u := uses[name]; err == nil && u != nil {
			u.count(o)
		} else if err == nil {
			strays = append(strays, eventlog.Entry{
				Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}, {Key: StateKey(name)}},
				Puts:   []eventlog.Put{{Key: kv.Key, Version: kv.Version + 1}},
			})
		}
		return c.orElse(ctx, kv.Key, err)
	})
	if err != nil || !mayForget {
		return err
	}
	for name, u := range uses {
		if u.over() {
			if err := c.orElse(ctx, StateKey(name), c.expire(ctx, name)); err != nil {
				return err
			}
		}
	}
	return c.forgetStrays(ctx, strays, func(group string) bool { return uses[group] != nil })
}

// forgetStrays submits the deletions in others, and deletes the heartbeats of dead peers whose
// groups have no state: the next peer that joins such a group would delete them, but perhaps none
// joins.
func (c *Coordinator) forgetStrays(ctx context.Context, others []eventlog.Entry, has func(group string) bool) error {
	asked := time.Now()
	var strays []*eventlog.Ticket
	for _, e := range others {
		strays = append(strays, c.log.Submit(ctx, e))
	}
	err := c.log.ListAll(ctx, memberPrefix, func(kv eventlog.KeyValue) error {
		name, s, err := parseHeartbeat(kv)
		if s.age = c.silentFor(kv, asked); err == nil && !has(name) && c.isDead(s) {
			strays = append(strays, c.log.Submit(ctx, eventlog.Entry{
				Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}},
				Puts:   []eventlog.Put{{Key: kv.Key, Version: kv.Version + 1}},
			}))
		}
		return c.orElse(ctx, kv.Key, err)
	})
	for _, t := range strays {
		_, _ = t.Wait(ctx) // a failure is repeated by the next sweep
	}
	return err
}

// orElse returns an error of the store, which ends the sweep. It logs any other error, and the
// sweep goes on.
func (c *Coordinator) orElse(ctx context.Context, key string, err error) error {
	ofStore := errors.Is(err, ErrLoading) || errors.Is(err, ErrUnavailable)
	if err == nil || ctx.Err() != nil || ofStore && !errors.Is(err, ErrNotCarried) {
		return err
	}
	c.logger.Error("expiry of a group or of its offsets failed; trying again later", "key", key, "err", err)
	return nil
}

// inspect returns how a group is used: from memory if this process owns it, otherwise from its
// stored state.
func (c *Coordinator) inspect(ctx context.Context, kv eventlog.KeyValue) (string, *use, error) {
	name, err := nameOfStateKey(kv.Key)
	if err != nil {
		return "", nil, err
	}
	g, err := c.hold(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer g.unlock()
	seen := g
	if !g.owned || g.version < kv.Version { // what other processes did since is not in memory
		seen = &group{c: c, name: name, pending: g.pending}
		if err := seen.restore(ctx, kv); err != nil {
			return "", nil, err
		}
	}
	return name, seen.use(), nil
}

// use is how a group is used, and which of its offsets may be deleted by Kafka's rules (KIP-211):
// offsets whose topic is gone; in a group without members, offsets committed longer ago than the
// retention, if the last member left longer ago as well; in a group of consumers, offsets committed
// that long ago in topics that no member reads any more. Where a group began in a topic is an
// offset, too, and stays as long as another one in the topic. A group is deleted when it has
// neither members nor offsets. Expired members left at their last heartbeat, by the store's clock.
// Reading a group does not change these times.
type use struct {
	c        *Coordinator
	owned    bool
	peers    bool
	maker    string // see storedState.MadeBy
	pending  bool
	state    State
	since    time.Time
	consumer bool // its members are Kafka consumers: which topics they read is known
	hadPeers bool // its last members were peers
	reads    func(topic string) bool

	expired []Committed
	left    int
}

func (g *group) use() *use {
	return &use{c: g.c, owned: g.owned, peers: g.peers, maker: g.maker, pending: len(g.pending) > 0, state: g.state, since: g.since,
		consumer: g.protocolType == consumerProtocol, hadPeers: g.protocolType == "" && g.generation > 0, reads: g.reads()}
}

// used is use, with the group's offsets: one trip per thousand, and the trips to read the topics if
// one is not known.
func (g *group) used(ctx context.Context) (*use, error) {
	u := g.use()
	var offsets []stored
	if err := listOffsets(ctx, g.c.log, g.name, func(o stored) error { offsets = append(offsets, o); return nil }); err != nil {
		return nil, err
	}
	if err := g.c.knowTopics(ctx, offsets); err != nil {
		return nil, err
	}
	for _, o := range offsets {
		u.count(o)
	}
	if err := u.spare(ctx, g.name); err != nil {
		return nil, fmt.Errorf("expiry of group %q: %w (%w)", g.name, ErrLoading, err)
	}
	u.keepStarts(offsets)
	return u, nil
}

// keepStarts takes some of the expired offsets out of u.expired: those that say where the group
// began in a topic in which another of its offsets stays. Without them the group would begin in the
// topic's other partitions with their first records, see addStarts. offsets are all of the group.
func (u *use) keepStarts(offsets []stored) {
	gone, stays := make(map[TopicPartition]bool), make(map[eventlog.TopicID]bool)
	for _, o := range u.expired {
		gone[o.TopicPartition] = true
	}
	for _, o := range offsets {
		stays[o.Topic] = stays[o.Topic] || !gone[o.TopicPartition]
	}
	before := len(u.expired)
	u.expired = slices.DeleteFunc(u.expired, func(o Committed) bool { return o.Partition == allPartitions && stays[o.Topic] })
	u.left += before - len(u.expired)
}

// only drops from u.expired all offsets but those in the given partitions: the others have expired
// after Beside was told to forget the given ones, so Beside still has them.
func (u *use) only(of []TopicPartition) {
	found := make(map[TopicPartition]bool, len(of))
	for _, tp := range of {
		found[tp] = true
	}
	before := len(u.expired)
	u.expired = slices.DeleteFunc(u.expired, func(o Committed) bool { return !found[o.TopicPartition] })
	u.left += before - len(u.expired)
}

// spare takes out of the expired offsets those that SQL committed, and that wait for records: the
// group has handled all of them, or the first one that it has not is younger than the retention.
// Who consumes with SQL need not be a member, so while nothing is published nobody can see that it
// is still there; and without its offset it would handle every record again.
func (u *use) spare(ctx context.Context, name string) error {
	if u.c.cfg.Beside == nil || len(u.expired) == 0 {
		return nil
	}
	kept, err := u.c.cfg.Beside.Keeps(ctx, name, places(u.expired))
	if err != nil {
		return err
	}
	var expired []Committed
	for i, o := range u.expired {
		waits := kept[i]
		if waits {
			if waits, err = u.c.waits(ctx, o); err != nil {
				return err
			}
		}
		if waits {
			u.left++
		} else {
			expired = append(expired, o)
		}
	}
	u.expired = expired
	return nil
}

// waits reports whether there is no record at an offset or after it, or the first one is younger
// than the retention. It costs a read.
func (c *Coordinator) waits(ctx context.Context, o Committed) (bool, error) {
	topic, err := c.log.TopicByID(o.Topic)
	if err != nil || o.Partition < 0 || int(o.Partition) >= len(topic.Partitions) {
		return false, nil // it is gone
	}
	p := topic.Partitions[o.Partition]
	bounds, err := c.log.Bounds(ctx, p)
	if err != nil {
		return false, err
	}
	from := max(o.Offset, bounds[0].Bounds.First)
	if from >= bounds[0].Bounds.Next {
		return true, nil
	}
	got, err := c.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1}}})
	if err != nil || len(got[0].Batches) == 0 { // trimmed meanwhile, or damaged: the next sweep sees
		return true, err
	}
	return time.Since(time.UnixMilli(int64(got[0].Batches[0].MaxTime))) < c.cfg.limits.OffsetRetention, nil
}

// knowTopics reads the topics again if offsets name one that this process does not know: the
// process may have been suspended when the topic was created. The offsets were read before, so a
// topic that is not known after this is gone.
func (c *Coordinator) knowTopics(ctx context.Context, offsets []stored) error {
	if !slices.ContainsFunc(offsets, func(o stored) bool { return !c.hasTopic(o.Topic) }) {
		return nil
	}
	if err := c.log.RefreshTopics(ctx); err != nil {
		return fmt.Errorf("%w (%w)", ErrLoading, err)
	}
	return nil
}

// count counts one offset of the group, as expired or as remaining.
func (u *use) count(o stored) {
	now, retention := time.Now(), u.c.cfg.limits.OffsetRetention
	unused := false
	switch {
	case u.state == Empty:
		unused = o.age > retention && now.Sub(u.since) > retention
	case u.state == Stable && u.consumer && !u.peers:
		unused = o.age > retention && !u.reads(o.Name)
	}
	if unused || o.age > u.c.doubt() && !u.c.hasTopic(o.Topic) {
		u.expired = append(u.expired, o.Committed)
	} else {
		u.left++
	}
}

// doubt is how old an offset must be before it is deleted because its topic is not known. A topic
// made a moment ago, through another broker, may not be known here yet. On shards, the one that has
// the topics may have been restored to before a topic was made, and may be restored again, while
// the offset is on a shard that has lost nothing.
func (c *Coordinator) doubt() time.Duration {
	if c.log.Sharded() {
		return c.cfg.limits.OffsetRetention
	}
	return c.cfg.limits.ExpireEvery
}

// over reports whether there is something to delete that this process may delete. In a group with
// members only its coordinator deletes. In a group of peers any process may delete the offsets of
// topics that are gone.
func (u *use) over() bool {
	switch {
	case u.pending:
		return false
	case u.peers:
		return len(u.expired) > 0
	case u.state == Empty && u.hadPeers && u.left == 0 && len(u.expired) == 0:
		// A peer that was suspended may commit with its generation, which must not come again
		// meanwhile.
		return time.Since(u.since) > u.c.cfg.limits.OffsetRetention
	case u.state == Empty:
		return u.left == 0 || len(u.expired) > 0
	}
	return u.owned && u.state == Stable && len(u.expired) > 0
}

// expire deletes a group's expired offsets, and the group itself if nothing is left.
func (c *Coordinator) expire(ctx context.Context, name string) error {
	g, err := c.lock(ctx, name, nothing)
	if err != nil {
		return err
	}
	defer g.unlock()
	u, err := g.used(ctx)
	if err != nil || g.version == 0 || !u.over() {
		return err
	}
	if !u.peers {
		// Commits may be in flight. Once a new version is stored, a commit either is in the store,
		// and is seen below, or will be refused.
		if err := g.save(ctx); errors.Is(err, eventlog.ErrStale) {
			return nil // somebody uses it
		} else if err != nil {
			return err
		}
	}
	whole := g.state == Empty && u.left == 0
	var of []TopicPartition
	if !whole {
		of = places(u.expired)
	}
	if err := c.forgetBeside(ctx, []string{name}, of); err != nil {
		return fmt.Errorf("group %q: %w (%w)", name, ErrLoading, err)
	}
	u, err = g.used(ctx) // the keys have what SQL committed meanwhile
	if err == nil && !whole {
		u.only(of)
	}
	switch {
	case err != nil || !u.over():
		return err
	case u.peers:
		if err = g.forgetOffsets(ctx, u.expired); errors.Is(err, eventlog.ErrStale) {
			return nil // its peers have changed it
		}
		return err
	case whole && u.left == 0:
		beats, err := listHeartbeats(ctx, g.c.log, g.name, g.c.silentFor)
		if err != nil {
			return fmt.Errorf("group %q: %w (%w)", g.name, ErrLoading, err)
		}
		g.c.logger.Info("group deleted: it is not needed any more", "group", g.name, "offsets", len(u.expired))
		return g.eraseLater(ctx, u.expired, beats)()
	}
	return g.forgetOffsets(ctx, u.expired)
}

// forgetOffsets deletes offsets of a group that stays.
func (g *group) forgetOffsets(ctx context.Context, offsets []Committed) error {
	g.c.logger.Info("expired offsets deleted", "group", g.name, "offsets", len(offsets))
	ctx, cancel := context.WithTimeout(ctx, patience(g.c.log))
	defer cancel()
	ch := change{offsets: offsets, gone: true}
	g.submit(ctx, &ch)
	_, err := ch.ticket.Wait(ctx)
	return g.land(ch, err)
}
