package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// sweep looks at every group in the store: one trip per thousand groups, and more for groups that this process has not seen
// yet, and for those with something to forget. One group's trouble does not keep it from the others.
func (c *Coordinator) sweep(ctx context.Context) error {
	return c.log.ListAll(ctx, statePrefix, func(kv eventlog.KeyValue) error {
		err := c.sweepGroup(ctx, kv)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrLoading) || errors.Is(err, ErrUnavailable) {
			return err
		}
		c.logger.Error("group left as it is", "key", kv.Key, "err", err)
		return nil
	})
}

func (c *Coordinator) sweepGroup(ctx context.Context, kv eventlog.KeyValue) error {
	name, err := nameOfStateKey(kv.Key)
	if err != nil {
		return err
	}
	g, err := c.hold(ctx, name)
	if err != nil {
		return err
	}
	defer g.leave()
	if g.version == 0 {
		if err := g.peek(ctx, kv); err != nil {
			return err
		}
	}
	return g.expire(ctx)
}

// expire forgets the offsets that nobody uses any more, by Kafka's rules (KIP-211), and the group when it has neither
// members nor offsets.
func (g *group) expire(ctx context.Context) error {
	expired, left := g.expired()
	switch {
	case g.state == Empty && len(g.pending) == 0 && (left == 0 || len(expired) > 0), g.abandoned():
		// Another broker may have written since, or commits may be on their way. Owning the group anew lets each of
		// them come first, and be seen, or not at all. Members that nobody heard get a session to speak up.
		if err := g.own(ctx); err != nil {
			return err
		}
		expired, left = g.expired()
	case !g.owned:
		return nil // what another broker coordinates is its own to look after
	}
	if g.version > 0 && g.state == Empty && left == 0 {
		g.c.logger.Info("group forgotten: nothing in it is needed any more", "group", g.name, "offsets", len(expired))
		return g.erase(ctx)
	}
	if len(expired) == 0 {
		return nil
	}
	g.c.logger.Info("offsets forgotten", "group", g.name, "offsets", len(expired))
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	ch := change{offsets: expired, gone: true}
	g.submit(ctx, &ch)
	_, err := ch.ticket.Wait(ctx)
	return g.land(ch, err)
}

// expired lists the offsets that can go, and counts the others. Those can go whose topic is gone; in a group
// without members, when commit and members are longer ago than the retention; of consumers that stopped reading the topic.
func (g *group) expired() (out []Committed, left int) {
	now, retention, reads := time.Now(), g.c.cfg.OffsetRetention, g.reads()
	for _, o := range g.offsets {
		age := now.Sub(o.at)
		unused := false
		switch {
		case o.gone:
			continue
		case g.state == Empty:
			unused = age > retention && now.Sub(g.since) > retention
		case g.state == Stable && g.protocolType == consumerProtocol:
			unused = age > retention && !reads(o.Name)
		}
		// A topic made a moment ago, through another broker, may not be known here yet.
		if unused || age > g.c.cfg.ExpireEvery && !g.c.hasTopic(o.Topic) {
			out = append(out, o.Committed)
		} else {
			left++
		}
	}
	return out, left
}

// abandoned reports whether nobody seems to play the members that the store knows: this process does not, and nobody wrote
// for the whole retention.
func (g *group) abandoned() bool {
	retention := g.c.cfg.OffsetRetention
	if g.owned || g.state == Empty || time.Since(g.since) <= retention {
		return false
	}
	for _, o := range g.offsets {
		if time.Since(o.at) <= retention {
			return false
		}
	}
	return true
}

// Lag is how far a group is behind in one partition.
type Lag struct {
	Group, Topic string
	Partition    int32
	Committed    eventlog.Offset
	Records      int64
}

// Stat is a group's size, for metrics.
type Stat struct {
	Group   string
	State   State
	Members int
}

// Stats returns the groups in memory and their lag, in one trip to the store however many they are.
func (c *Coordinator) Stats(ctx context.Context) ([]Stat, []Lag, error) {
	var stats []Stat
	var lags []Lag
	var ps []eventlog.Partition
	for _, g := range c.all() {
		c.stay(g)
		if g.version > 0 || len(g.members) > 0 {
			stats = append(stats, Stat{g.name, g.state, len(g.members)})
		}
		for _, o := range g.allOffsets() {
			topic, err := c.log.TopicByID(o.Topic)
			if err != nil || int(o.Partition) >= len(topic.Partitions) {
				continue
			}
			ps = append(ps, topic.Partitions[o.Partition])
			lags = append(lags, Lag{Group: g.name, Topic: topic.Name, Partition: o.Partition, Committed: o.Offset})
		}
		g.leave()
	}
	if len(ps) == 0 {
		return stats, nil, nil
	}
	slices, err := c.log.Bounds(ctx, ps...)
	if err != nil {
		return stats, nil, fmt.Errorf("lag of groups: %w", err)
	}
	for i, s := range slices {
		lags[i].Records = max(0, int64(s.Bounds.Next-max(lags[i].Committed, s.Bounds.First)))
	}
	return stats, lags, nil
}
