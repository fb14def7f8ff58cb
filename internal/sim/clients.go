package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/use/group"
)

// online is a group that has no other members than Kafka's clients: it changes its protocol.
const online = "online"

// kafkaClients are members that speak Kafka's protocols, in the group of the Go consumers and in
// one of their own: now and then they leave, and come back with another protocol. So the groups
// change theirs, in both directions, whatever happens to the processes meanwhile.
func (w *world) kafkaClients() {
	if w.ledger != nil { // a copy that is put back takes back what clients read; its judge looks at others
		return
	}
	for n := range 5 {
		of := map[bool]string{true: "billing", false: online}[n < 2]
		w.act(fmt.Sprintf("kafka-client%d", n), func(ctx context.Context, random *rand.Rand) {
			for life := 0; ctx.Err() == nil; life++ {
				c := &client{w: w, group: of, random: random, name: fmt.Sprintf("kafka%d.%d", n, life), classic: random.IntN(2) == 0}
				c.live(ctx, time.Now().Add(2*time.Second+upTo(random, 20*time.Second)))
				c.leave()
				sleep(ctx, upTo(random, 10*time.Second))
			}
		})
	}
}

// client is what such a client knows.
type client struct {
	w       *world
	random  *rand.Rand
	group   string
	name    string
	classic bool
	p       *life // that it speaks to
	member  string
	epoch   int32 // or generation
	joined  bool
	asked   time.Time // when it sent its last heartbeat or Sync: its session runs since then
	has     map[group.TopicPartition]*position
}

// holders says who has which partition of which group, and when a heartbeat last told so.
type holders struct {
	mu    sync.Mutex // guards what follows
	by    map[holding]time.Time
	doubt map[holding]doubt
}

// doubt is about a partition that a member has: another member was told, at a time, that it has it.
type doubt struct {
	other *client
	at    time.Time
}

type holding struct {
	who   *client
	group string
	tp    group.TopicPartition
}

// tell notes that the member c was told that it has partitions, and returns another member that has
// one of them, too; nil: none has. That is so if first c was told that it has the partition, then
// the other was told so, and then c asked and was told so again: a member that is only late to give
// a partition up loses all of them when it asks again.
func (h *holders) tell(c *client, tps []group.TopicPartition) (other *client, of group.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, tp := range tps {
		mine := holding{c, c.group, tp}
		if d, doubted := h.doubt[mine]; doubted && c.asked.After(d.at) && c.asked.Sub(d.at) < overlapMin {
			other, of = d.other, tp
		}
		h.by[mine] = c.asked
	}
	for o, at := range h.by {
		if o.who != c && o.group == c.group && slices.Contains(tps, o.tp) && time.Since(at) < overlapMin {
			h.doubt[o] = doubt{c, time.Now()}
		}
	}
	return other, of
}

// forget notes that a member has given partitions up, or has lost them.
func (h *holders) forget(c *client, which func(group.TopicPartition) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.by, func(o holding, _ time.Time) bool { return o.who == c && which(o.tp) })
	maps.DeleteFunc(h.doubt, func(o holding, d doubt) bool { return (o.who == c || d.other == c) && which(o.tp) })
}

// A partition is taken from a member that has not given it up only after a session or a rebalance
// time-out: five seconds at least. So two members must not ask in turn, within overlapMin, and both
// be told that a partition is theirs. Answers that tell what was so longer ago than toldBy do not
// count.
const (
	toldBy     = 2500 * time.Millisecond
	overlapMin = 1500 * time.Millisecond
)

// position is how far a client has read a partition.
type position struct {
	topic  string
	next   eventlog.Offset
	behind bool // what it handled is not committed yet
}

// live keeps the client a member of its group until a time.
func (c *client) live(ctx context.Context, until time.Time) {
	c.lose()
	for ctx.Err() == nil && time.Now().Before(until) {
		if c.p == nil || c.p.host.isDead() || c.random.IntN(20) == 0 {
			c.p = c.w.coordinator(c.random)
		}
		if c.p != nil {
			c.step()
		}
		sleep(ctx, upTo(c.random, time.Second))
	}
}

// step is one turn: a heartbeat, then a page of each partition.
func (c *client) step() {
	ctx, cancel := asks()
	defer cancel()
	var err error
	asOf := c.p.parts.Groups.AsOf(c.group, c.member)
	if c.classic {
		err = c.beatClassic(ctx)
	} else {
		err = c.beat(ctx)
	}
	switch {
	case c.p.host.isDead(): // nobody has its answer
	case err == nil && time.Since(asOf) > toldBy: // it may not know what another process changed in the group
		c.w.holders.forget(c, anyPartition)
		c.read(ctx)
	case err == nil:
		other, tp := c.w.holders.tell(c, slices.Collect(maps.Keys(c.has)))
		if other != nil {
			c.w.model.Broken("G5", []string{c.group}, "%s has partition %d of %s, of which %s was told before it asked", c.name, tp.Partition, c.has[tp].topic, other.name)
		}
		c.read(ctx)
	case slices.ContainsFunc(losses, func(loss error) bool { return errors.Is(err, loss) }):
		c.w.history.Add(fmt.Sprintf("%s at %s loses its membership: %v", c.name, c.p.name, err), c.group)
		c.lose()
	case errors.Is(err, group.ErrMoved):
		c.p = nil
	}
}

// coordinator is the process that clients take for a group's coordinator. Now and then one is
// mistaken.
func (w *world) coordinator(random *rand.Rand) *life {
	for _, p := range w.processes {
		if l := p.live(); l != nil && random.IntN(20) > 0 {
			return l
		}
	}
	return w.any(random)
}

// losses end a membership.
var losses = []error{group.ErrUnknownMember, group.ErrFencedEpoch, group.ErrIllegalGeneration, group.ErrFencedInstance}

// lose forgets the membership.
func (c *client) lose() {
	if c.classic || c.random.IntN(2) == 0 { // Java's clients of the consumer protocol join again as who they were
		c.member = ""
	}
	c.epoch, c.joined = 0, false
	c.w.holders.forget(c, anyPartition)
	c.has = map[group.TopicPartition]*position{}
}

// beat is a heartbeat of the consumer protocol.
func (c *client) beat(ctx context.Context) error {
	if c.member == "" {
		c.member = fmt.Sprintf("%s-%x", c.name, c.random.Uint64())
	}
	b := group.ConsumerBeat{
		Group: c.group, Member: c.member, Epoch: c.epoch, ClientID: c.name, Rebalance: 5 * time.Second, Topics: groups[c.group],
		Owned: []group.TopicPartition{},
	}
	for tp := range c.has {
		b.Owned = append(b.Owned, tp)
	}
	c.asked = time.Now()
	a, err := c.p.parts.Groups.ConsumerHeartbeat(ctx, b)
	if err != nil || c.p.host.isDead() {
		return err
	}
	c.epoch = a.Epoch
	if !a.Tells {
		return nil
	}
	c.giveUp(ctx, func(tp group.TopicPartition) bool { return !slices.Contains(a.Assigned, tp) })
	return c.take(ctx, a.Assigned)
}

// beatClassic is a heartbeat of the classic protocol, and what comes before the first and after a
// rebalance. The client's assignor is eager.
func (c *client) beatClassic(ctx context.Context) error {
	if c.joined {
		c.asked = time.Now()
		err := c.p.parts.Groups.Heartbeat(ctx, group.Beat{Group: c.group, Member: c.member, Generation: c.epoch})
		if !errors.Is(err, group.ErrRebalancing) {
			return err
		}
	}
	c.giveUp(ctx, anyPartition)
	c.joined = false
	subscription := kmsg.ConsumerMemberMetadata{Version: 1, Topics: groups[c.group]}
	join := group.Join{
		Group: c.group, Member: c.member, ClientID: c.name, Session: 6 * time.Second, Rebalance: 6 * time.Second, ProtocolType: "consumer",
		Protocols: []group.Protocol{{Name: "range", Metadata: subscription.AppendTo(nil)}}, NeedsMemberID: true,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // as long as a rebalance may take
	defer cancel()
	j, err := c.p.parts.Groups.Join(ctx, join)
	if errors.Is(err, group.ErrMemberIDRequired) {
		c.member, join.Member = j.Member, j.Member
		j, err = c.p.parts.Groups.Join(ctx, join)
	}
	if err != nil {
		return err
	}
	c.member, c.epoch = j.Member, j.Generation
	c.asked = time.Now()
	out, err := c.p.parts.Groups.Sync(ctx, group.Sync{
		Group: c.group, Member: c.member, Generation: c.epoch, ProtocolType: "consumer", Protocol: j.Protocol, Assignments: c.assign(j),
	})
	if err != nil || c.p.host.isDead() {
		return err
	}
	c.joined = true
	var told kmsg.ConsumerMemberAssignment
	if err := told.ReadFrom(out.Assignment); err != nil {
		c.w.model.Broken("G5", []string{c.group}, "%s is told an assignment that cannot be read: %v", c.name, err)
		return nil
	}
	var all []group.TopicPartition
	for _, t := range told.Topics {
		topic, err := c.p.parts.Log.Topic(ctx, t.Topic)
		if err != nil {
			return err
		}
		for _, n := range t.Partitions {
			all = append(all, group.TopicPartition{Topic: topic.ID, Partition: n})
		}
	}
	return c.take(ctx, all)
}

// assign deals all partitions, if the client leads its group.
func (c *client) assign(j group.Joined) map[string][]byte {
	if j.Leader != j.Member || len(j.Members) == 0 {
		return nil
	}
	shares, next := make([]kmsg.ConsumerMemberAssignment, len(j.Members)), 0
	for _, topic := range names {
		for n := range topics[topic] {
			share := &shares[next%len(shares)]
			at := slices.IndexFunc(share.Topics, func(t kmsg.ConsumerMemberAssignmentTopic) bool { return t.Topic == topic })
			if at < 0 {
				at = len(share.Topics)
				share.Topics = append(share.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic})
			}
			share.Topics[at].Partitions = append(share.Topics[at].Partitions, int32(n))
			next++
		}
	}
	out := map[string][]byte{}
	for i, m := range j.Members {
		out[m.Member] = shares[i].AppendTo(nil)
	}
	return out
}

// take begins to read the partitions that are new, where the group is in them.
func (c *client) take(ctx context.Context, all []group.TopicPartition) error {
	found, err := c.p.parts.Groups.Fetch(ctx, c.group, all)
	if err != nil {
		return err // the consumer protocol tells the partitions again; the classic one, after the next rebalance
	}
	for i, tp := range all {
		if topic, err := c.p.parts.Log.TopicByID(tp.Topic); err == nil && c.has[tp] == nil {
			c.has[tp] = &position{topic: topic.Name, next: max(0, found[i].Offset)}
		}
		if at := c.has[tp]; at != nil {
			c.w.model.Owns(c.group, c.name, c.epoch, judge.Partition{Topic: at.topic, N: tp.Partition})
		}
	}
	return nil
}

// giveUp commits what was handled of some partitions, and forgets them.
func (c *client) giveUp(ctx context.Context, which func(group.TopicPartition) bool) {
	c.commit(ctx, which)
	c.w.holders.forget(c, which)
	for tp := range c.has {
		if which(tp) {
			delete(c.has, tp)
		}
	}
}

// read handles a page of each partition, and commits.
func (c *client) read(ctx context.Context) {
	for _, tp := range slices.SortedFunc(maps.Keys(c.has), byTopicPartition) {
		at, n := c.has[tp], 0
		for e, err := range c.p.log.Read(ctx, weir.TopicPartition{Topic: at.topic, Partition: tp.Partition}, weir.AtOffset(int64(at.next))) {
			if err != nil || c.p.host.isDead() || n == 20 {
				break
			}
			n++
			c.w.model.Deliver(c.group, c.name, false, judge.SightsOf(e)...)
			at.next, at.behind = eventlog.Offset(e.Offset)+1, true
		}
	}
	c.commit(ctx, anyPartition)
}

// commit commits what was handled of some partitions. What fails is committed later.
func (c *client) commit(ctx context.Context, which func(group.TopicPartition) bool) {
	r := group.Commit{Group: c.group, Member: c.member, Generation: c.epoch}
	for _, tp := range slices.SortedFunc(maps.Keys(c.has), byTopicPartition) {
		if at := c.has[tp]; at.behind && which(tp) {
			r.Offsets = append(r.Offsets, group.Committed{TopicPartition: tp, Name: at.topic, Offset: at.next, LeaderEpoch: -1})
		}
	}
	if len(r.Offsets) == 0 || c.p == nil {
		return
	}
	_, err := c.p.parts.Groups.Commit(ctx, r)
	c.w.history.Add(fmt.Sprintf("%s at %s commits %d offsets in %d: %v", c.name, c.p.name, len(r.Offsets), c.epoch, err), c.group)
	if err != nil || c.p.host.isDead() {
		return
	}
	for _, o := range r.Offsets {
		c.has[o.TopicPartition].behind = false
	}
}

func anyPartition(group.TopicPartition) bool { return true }

// leave ends the membership. If that fails, it ends with its session.
func (c *client) leave() {
	for range 10 {
		if c.p == nil || c.p.host.isDead() {
			c.p = c.w.coordinator(c.random)
		}
		if c.member == "" {
			return
		}
		if c.p == nil {
			time.Sleep(500 * time.Millisecond)
			continue
		}
		ctx, cancel := asks()
		c.giveUp(ctx, anyPartition)
		var err error
		if c.classic {
			_, err = c.p.parts.Groups.Leave(ctx, c.group, []group.Leaver{{Member: c.member}})
		} else {
			_, err = c.p.parts.Groups.ConsumerHeartbeat(ctx, group.ConsumerBeat{Group: c.group, Member: c.member, Epoch: -1})
		}
		cancel()
		if err == nil || errors.Is(err, group.ErrUnknownMember) {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func byTopicPartition(a, b group.TopicPartition) int {
	if c := slices.Compare(a.Topic[:], b.Topic[:]); c != 0 {
		return c
	}
	return int(a.Partition - b.Partition)
}
