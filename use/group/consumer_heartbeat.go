package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

// The rules of Kafka's consumer protocol (KIP-848), as GroupMetadataManager of Apache Kafka 4.3 has
// them. A member's epoch is the generation of the group that it was told last. A member that has
// partitions to give up keeps its epoch until it has given them up.

// Values in place of a member's epoch that are no epochs.
const (
	epochJoin        = 0
	epochLeave       = -1
	epochStaticLeave = -2 // a static member leaves for a while
)

const (
	memberIDMax = 512  // bytes of a member id that a client made
	patternMax  = 4096 // bytes of a regular expression
	// patternSizeMax bounds what it costs to compile one, and to match it: Go itself allows 3
	// million instructions, which take seconds and 100 MB.
	patternSizeMax = 10_000
)

type (
	// ConsumerBeat is a heartbeat of a member of the consumer protocol. What is nil, or a negative
	// Rebalance, is as it was in the heartbeat before.
	ConsumerBeat struct {
		Group, Member string // Member is empty for one that wants an id
		Epoch         int32
		Instance      *string
		Rack          *string
		ClientID      string
		ClientHost    string
		By            string        // as Join.By
		Rebalance     time.Duration // how long it may take to give up partitions
		Topics        []string
		Pattern       *string // a regular expression for whole names of topics, beside Topics; "": none
		Assignor      *string
		Owned         []TopicPartition // the partitions that it has; those that it was to give up, and that are not among them, are released

		// Of a member of the classic protocol (host_classic.go).
		offers     []Protocol
		named      bool    // its join has a member id; the first join of a static member has none
		ownedNames reading // what it has beside Owned; in order

		// Sees reports whether the member's user may see a topic: Pattern matches no other.
		Sees func(topic string) bool

		session, interval time.Duration // as the group's settings say or, for a member of the classic protocol, its join
	}

	// ConsumerBeaten is the answer to a ConsumerBeat.
	ConsumerBeaten struct {
		Member   string
		Epoch    int32
		Interval time.Duration    // until its next heartbeat
		Assigned []TopicPartition // what it may have, if Tells
		Tells    bool
	}
)

// complete reports whether the heartbeat has all that one may have: then its answer has the
// assignment, even if that has not changed.
func (b ConsumerBeat) complete() bool {
	return b.Epoch == epochJoin || b.Rebalance >= 0 && (b.Topics != nil || b.Pattern != nil) && b.Owned != nil
}

func (b ConsumerBeat) check() error {
	invalid := func(why string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidRequest, fmt.Sprintf(why, args...))
	}
	empty := func(s *string) bool { return s != nil && *s == "" }
	switch {
	case b.Group == "":
		return invalid("the group's name is empty")
	case len(b.Group) > nameMax:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidGroup, len(b.Group), nameMax)
	case b.Member == "" && b.Epoch != epochJoin:
		return invalid("the member id is empty")
	case len(b.Member) > memberIDMax:
		return invalid("the member id has %d bytes, the limit is %d", len(b.Member), memberIDMax)
	case empty(b.Instance):
		return invalid("the instance id is empty")
	case empty(b.Rack):
		return invalid("the rack id is empty")
	case b.Epoch < epochStaticLeave:
		return invalid("the member epoch is %d", b.Epoch)
	case b.Epoch == epochStaticLeave && b.Instance == nil:
		return invalid("a member that leaves for a while must give its instance id")
	case b.Epoch == epochJoin && b.Rebalance < 0:
		return invalid("a member that joins must give its rebalance time-out")
	case b.Epoch == epochJoin && (b.Owned == nil || len(b.Owned) > 0):
		return invalid("a member that joins must have an empty list of partitions")
	case b.Epoch == epochJoin && b.Topics == nil && b.Pattern == nil:
		return invalid("a member that joins must give topics or a regular expression")
	case len(b.Topics) > peerTopicsMax:
		return invalid("the member subscribes to %d topics, the limit is %d", len(b.Topics), peerTopicsMax)
	case b.Assignor != nil && *b.Assignor != uniformAssignor && *b.Assignor != rangeAssignor:
		return fmt.Errorf("%w %q: weir has %s and %s", ErrUnsupportedAssignor, *b.Assignor, uniformAssignor, rangeAssignor)
	}
	for _, name := range b.Topics {
		if len(name) > eventlog.TopicNameMax {
			return invalid("the name of a topic has %d bytes, the limit is %d", len(name), eventlog.TopicNameMax)
		}
	}
	for _, s := range []*string{&b.Member, b.Instance, b.Rack} { // they are part of the group's state, which is text
		if s != nil && (!utf8.ValidString(*s) || len(*s) > memberIDMax || strings.Contains(*s, "\x00")) {
			return invalid("%q is longer than %d bytes, or is no text", (*s)[:min(len(*s), memberIDMax)], memberIDMax)
		}
	}
	if b.Pattern != nil {
		if _, err := compile(*b.Pattern); err != nil {
			return fmt.Errorf("%w %q: %v", ErrInvalidPattern, (*b.Pattern)[:min(len(*b.Pattern), patternMax)], err)
		}
	}
	return nil
}

// compile returns what matches whole names of topics, as in Kafka. nil: the pattern is empty.
func compile(pattern string) (*regexp.Regexp, error) {
	switch {
	case pattern == "":
		return nil, nil
	case len(pattern) > patternMax:
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(pattern), patternMax)
	case !utf8.ValidString(pattern) || strings.Contains(pattern, "\x00"):
		return nil, errors.New("it is no text")
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil && treeSize(tree) > patternSizeMax {
		err = fmt.Errorf("with all its repetitions it is larger than %d characters", patternSizeMax)
	}
	if err != nil {
		return nil, err
	}
	return regexp.Compile("^(?:" + pattern + ")$")
}

// treeSize is about how many instructions an expression becomes: what is to be repeated a thousand
// times becomes a thousand copies.
func treeSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size += treeSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, 1<<40)
}

// pattern is compile for what was checked before.
func pattern(checked string) *regexp.Regexp {
	re, err := compile(checked)
	if err != nil {
		return nil
	}
	return re
}

// ConsumerHeartbeat keeps a member of the consumer protocol in its group, tells it which partitions
// it may have, and takes back those that it no longer has. A heartbeat that changes nothing costs
// no store call.
func (c *Coordinator) ConsumerHeartbeat(ctx context.Context, b ConsumerBeat) (a ConsumerBeaten, err error) {
	a.Member = b.Member
	if err := c.mayChange(b.Group); err != nil {
		return a, err
	}
	if err := b.check(); err != nil {
		return a, err
	}
	if b.session, b.interval, err = c.times(ctx, b.Group); err != nil {
		return a, err
	}
	h, done, err := c.hostOf(b.Group, b.By)
	if err != nil {
		return a, err
	}
	defer done()
	err = h.load(ctx, b.Member, b.Epoch == epochJoin)
	if errors.Is(err, ErrInconsistentProtocol) && b.Epoch == epochJoin {
		if err = h.upgrade(ctx); err == nil {
			err = h.load(ctx, b.Member, true)
		}
	}
	switch {
	case errors.Is(err, ErrInconsistentProtocol) && b.Epoch != epochJoin: // it may join again
		return a, fmt.Errorf("%w: member %q is not in group %q, which is of the classic protocol now", ErrUnknownMember, b.Member, b.Group)
	case errors.Is(err, ErrInconsistentProtocol):
		return a, fmt.Errorf("%w: %w", ErrNotConsumerGroup, err)
	case err != nil:
		return a, err
	}
	if b.Epoch == epochLeave || b.Epoch == epochStaticLeave {
		a.Epoch = b.Epoch
		return a, h.leave(ctx, b)
	}
	if b.Epoch == epochJoin {
		if err := h.admits(ctx); err != nil {
			return a, err
		}
		if b.Member == "" {
			b.Member = rand.Text()
			a.Member = b.Member
		}
	}
	if b.Epoch == epochJoin || b.Topics != nil {
		if err := h.reserve(b); err != nil {
			return a, fmt.Errorf("member %q: %w", b.Member, err)
		}
		defer h.joined(b)
	}
	err = h.grant(ctx, b)
	switch {
	case errors.Is(err, ErrInconsistentProtocol):
		return a, fmt.Errorf("group %q: %w: it changed to the classic protocol meanwhile (%v)", b.Group, ErrUnavailable, err)
	case err != nil:
		return a, err
	}
	return h.answer(b)
}

// grant makes the change of the group that a heartbeat asks for, if any. Before it refuses a join
// because of other members it reads the group: what the host knows of them may be a second old.
func (h *host) grant(ctx context.Context, b ConsumerBeat) error {
	h.mu.Lock()
	seen := h.group.version
	h.mu.Unlock()
	err := h.tryGrant(ctx, b)
	if b.Epoch != epochJoin || !errors.Is(err, ErrUnreleasedInstance) && !errors.Is(err, ErrFull) {
		return err
	}
	if err := h.readAgain(ctx, seen); err != nil {
		return err
	}
	return h.tryGrant(ctx, b)
}

func (h *host) tryGrant(ctx context.Context, b ConsumerBeat) error {
	next, needed, err := h.judge(b)
	if err != nil || !needed {
		return err
	}
	if slices.ContainsFunc(b.Topics, func(name string) bool { return !h.log.KnowsTopic(name) }) {
		if err := h.log.RefreshTopics(ctx); err != nil { // another process may have created them a moment ago
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
	}
	return h.submit(ctx, next)
}

// admits checks whether members that have a host may join: a store call if the group has no such
// members yet.
func (h *host) admits(ctx context.Context) error {
	h.mu.Lock()
	r := h.group
	h.mu.Unlock()
	if r.version == 0 {
		if err := h.census.admit(h.name, h.by); err != nil {
			return err
		}
	}
	if r.hosted || len(r.members) == 0 {
		return nil
	}
	beats, err := listHeartbeats(ctx, h.log, h.name, h.others)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	for _, s := range beats {
		if !s.info.KnowsHosts && !s.dead() {
			return fmt.Errorf("group %q: %w: its member %q runs in a process of an older weir, which knows no members of Kafka's consumer protocol. Upgrade that process first", h.name, ErrNotConsumerGroup, s.id)
		}
	}
	return nil
}

// judge decides about a heartbeat with which the member does not leave. It returns the change that
// the heartbeat asks for.
func (h *host) judge(b ConsumerBeat) (edit func([]peerMember) ([]peerMember, bool, error), needed bool, err error) {
	edit = h.wants(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Epoch != epochJoin {
		if err := h.entitled(b); err != nil {
			return nil, false, err
		}
	}
	_, needed, err = edit(slices.Clone(h.group.members))
	if k := h.members[b.Member]; k != nil && k.evicted {
		needed = true // a member that is being evicted joins after its eviction
	}
	if err == nil && !needed && !h.trusted() { // others may have what it would be told that it has
		err = h.mistrust()
	}
	return edit, needed, err
}

// entitled notes that the member is heard, and checks its id, instance and epoch. h.mu is held.
func (h *host) entitled(b ConsumerBeat) error {
	known := h.member(b.Member)
	me, _ := h.group.find(b.Member)
	if b.Instance != nil {
		switch owner, is := h.group.instance(*b.Instance); {
		case !is:
			return fmt.Errorf("%w: the group has no member with the instance id %q", ErrUnknownMember, *b.Instance)
		case owner.id != b.Member:
			return fmt.Errorf("%w: the instance id %q is that of member %q now", ErrFencedInstance, *b.Instance, owner.id)
		}
	}
	if known == nil {
		return fmt.Errorf("%w: member %q is not in group %q", ErrUnknownMember, b.Member, h.name)
	}
	known.deadline = time.Now().Add(me.session()) // it is heard, also if it cannot be answered
	switch {
	case !h.trusted():
		return h.mistrust()
	case known.epoch == 0 && b.Epoch <= h.group.generation: // another host told it that epoch
		known.epoch = b.Epoch
	case b.Epoch > known.epoch:
		return fmt.Errorf("%w: %d is newer than that of the group, %d. Give up all partitions, and join again", ErrFencedEpoch, b.Epoch, known.epoch)
	case b.Epoch == known.repeated && known.repeated > 0:
	case b.Epoch < known.epoch && !(known.previous > 0 && b.Epoch >= known.previous && me.hasAll(b.Owned)):
		// Only epochs from the previous one on are accepted, and only with an Owned that has
		// nothing but the member's partitions: the answers with the newer ones may have been lost.
		return fmt.Errorf("%w: %d is older than that of the group, %d. Give up all partitions, and join again", ErrFencedEpoch, b.Epoch, known.epoch)
	}
	return nil
}

// hasAll reports whether a heartbeat has a list of partitions, which may be empty, and all in it
// are the member's.
func (s peerMember) hasAll(owned []TopicPartition) bool {
	return owned != nil && !slices.ContainsFunc(owned, func(tp TopicPartition) bool { return !s.has(tp) })
}

// trusted reports whether it is certain that no other process has taken this host's members because
// of its silence. h.mu is held.
func (h *host) trusted() bool { return time.Since(h.beaten) < h.session() }

func (h *host) mistrust() error {
	return fmt.Errorf("group %q: %w: the store has taken no heartbeat of this broker for %v", h.name, ErrUnavailable, h.session())
}

// hostOfClient is a client's address without the slash that Kafka shows it with.
func hostOfClient(s string) string { return strings.TrimPrefix(s, "/") }

func (r membership) instance(id string) (peerMember, bool) {
	i := slices.IndexFunc(r.members, func(m peerMember) bool { return m.kafka.instance == id && m.kafka.host != "" })
	if i < 0 {
		return peerMember{}, false
	}
	return r.members[i], true
}

// wants returns the change of the group that a heartbeat asks for: the member joins, or comes back
// as a static member; it subscribes to other topics; it gives up partitions.
func (h *host) wants(b ConsumerBeat) func([]peerMember) ([]peerMember, bool, error) {
	topics, tooMany := h.subscription(b)
	later, neverTold := h.toldLater(b)
	return func(members []peerMember) ([]peerMember, bool, error) {
		if tooMany != nil {
			return nil, false, tooMany
		}
		i := slices.IndexFunc(members, func(m peerMember) bool { return m.id == b.Member })
		if i >= 0 && members[i].kafka.host == "" {
			return nil, false, fmt.Errorf("%w: %q is a member that does not speak Kafka's protocol", ErrUnknownMember, b.Member)
		}
		var me peerMember
		if i >= 0 {
			me = members[i]
		}
		was := me
		if b.Epoch == epochJoin {
			if b.Instance != nil && (i < 0 || me.kafka.instance != *b.Instance) {
				if old, is := (membership{members: members}).instance(*b.Instance); is {
					if !old.kafka.away && b.named {
						return nil, false, fmt.Errorf("%w: %q is that of member %q now", ErrFencedInstance, *b.Instance, old.id)
					}
					if !old.kafka.away && !old.kafka.classic && b.offers == nil {
						return nil, false, fmt.Errorf("%w: %q is that of member %q. Stop it, or wait until its session ends", ErrUnreleasedInstance, *b.Instance, old.id)
					}
					members = slices.DeleteFunc(members, func(m peerMember) bool { return m.id == old.id || m.id == b.Member })
					me, i = old, -1 // it takes over what the other one had
				}
			}
			if i < 0 && me.id == "" && len(members) >= h.c.cfg.limits.MembersMax {
				return nil, false, fmt.Errorf("%w: it has %d members, which is the limit", ErrFull, len(members))
			}
			if i < 0 {
				i = len(members)
				members = append(members, me)
			}
			me.id, me.kafka.host, me.kafka.away = b.Member, h.id, false
			me.info.Client, me.info.Host = text(b.ClientID), hostOfClient(b.ClientHost)
			me.kafka.classic = b.offers != nil
			if b.Instance != nil {
				me.kafka.instance = *b.Instance
			}
		} else if i < 0 {
			return nil, false, fmt.Errorf("%w: member %q is not in group %q", ErrUnknownMember, b.Member, h.name)
		}
		me.info.SessionMS = b.session.Milliseconds()
		if b.Rebalance >= 0 {
			me.kafka.rebalance = b.Rebalance.Truncate(time.Millisecond)
		}
		if b.Rack != nil {
			me.kafka.rack = *b.Rack
		}
		if b.Assignor != nil {
			me.kafka.assignor = *b.Assignor
		}
		if b.Pattern != nil {
			me.kafka.pattern = *b.Pattern
		}
		if topics != nil {
			me.info.Topics = topics
		}
		if len(me.revoking) > 0 {
			owned := slices.SortedFunc(slices.Values(b.Owned), byPlace)
			me.revoking = slices.DeleteFunc(slices.Clone(me.revoking), func(tp TopicPartition) bool {
				if later(tp) {
					return neverTold
				}
				_, named := slices.BinarySearch(b.ownedNames[me.names[tp.Topic]], tp.Partition)
				return b.Owned != nil && !holds(owned, tp) && !named
			})
		}
		members[i] = me
		return members, was.id != me.id || was.kafka != me.kafka || was.info.SessionMS != me.info.SessionMS || !slices.Equal(was.info.Topics, me.info.Topics) || len(was.revoking) != len(me.revoking), nil
	}
}

// toldLater reports of which partitions the member may have been told after it sent a heartbeat, by
// this host or by the one before. If the heartbeat was late on its way, the member has them, and
// does not name them. If it is repeated because an answer was lost, the member does not know of
// them. So it is answered with the epoch that it sent (answer). Its next heartbeat has that epoch
// only if it got this answer and not the other one: then it was never told.
func (h *host) toldLater(b ConsumerBeat) (later func(TopicPartition) bool, neverTold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.members[b.Member]
	if k == nil || b.Epoch == epochJoin {
		return func(TopicPartition) bool { return false }, false
	}
	after := make(map[TopicPartition]bool)
	me, _ := h.group.find(b.Member)
	for _, tp := range me.revoking {
		after[tp] = k.later(tp, b.Epoch)
	}
	return func(tp TopicPartition) bool { return after[tp] }, b.Epoch == k.repeated
}

// later reports whether the member may have been told of a partition with an epoch above this one.
func (k *hosted) later(tp TopicPartition, epoch int32) bool {
	if at, told := k.toldAt[tp]; told {
		return at > epoch
	}
	return k.since[tp] > epoch && k.since[tp] <= k.from // by the host before
}

// text is a client's id as the group's state can hold it.
func text(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
	return s[:min(len(s), clientIDMax)]
}

// subscription returns the topics that a member reads now; nil: they are as before. What a pattern
// matches is found again at every heartbeat. As in Kafka, it may match internal topics. A pattern
// that is new and matches too many topics is an error. If one comes to match too many, the member
// keeps what it can have, and the log says so.
func (h *host) subscription(b ConsumerBeat) ([]string, error) {
	h.mu.Lock()
	me, _ := h.group.find(b.Member)
	h.mu.Unlock()
	before := pattern(me.kafka.pattern)
	now := before
	if b.Pattern != nil {
		now = pattern(*b.Pattern)
	}
	named := b.Topics
	switch {
	case now == nil && named == nil && b.Pattern == nil:
		return nil, nil
	case named == nil: // those that it named before
		named = slices.DeleteFunc(slices.Clone(me.info.Topics), func(name string) bool { return before != nil && before.MatchString(name) })
	}
	found := append(make([]string, 0, len(named)), named...)
	for _, t := range h.log.Topics() {
		if now != nil && now.MatchString(t.Name) && (b.Sees == nil || b.Sees(t.Name)) {
			found = append(found, t.Name)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	switch isNew := b.Epoch == epochJoin || b.Pattern != nil && *b.Pattern != me.kafka.pattern; {
	case len(found) <= peerTopicsMax:
		return found, nil
	case isNew:
		return nil, fmt.Errorf("%w: the member's topics, with those that its regular expression matches, are %d; the limit is %d", ErrInvalidRequest, len(found), peerTopicsMax)
	case len(me.info.Topics) < peerTopicsMax:
		h.logger.Warn("a regular expression has come to match more topics than a member may have; the others are not read by it", "member", b.Member, "topics", len(found), "most", peerTopicsMax)
	}
	return found[:peerTopicsMax], nil
}

// answer ends a heartbeat of a member that is in the group.
func (h *host) answer(b ConsumerBeat) (a ConsumerBeaten, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	me, _ := h.group.find(b.Member)
	k := h.member(b.Member)
	if k == nil {
		return ConsumerBeaten{Member: b.Member}, fmt.Errorf("%w: member %q is no longer in group %q", ErrUnknownMember, b.Member, h.name)
	}
	now := time.Now()
	k.deadline = now.Add(me.session())
	if k.offers = b.offers; k.epoch == 0 && len(me.revoking) > 0 {
		k.epoch = h.group.generation - 1 // the host does not know what another host told the member
	}
	switch {
	case len(me.revoking) == 0:
		k.giveUpBy, k.giveUp = time.Time{}, nil
		if k.epoch != h.group.generation {
			k.previous, k.epoch = cmp.Or(b.Epoch, k.epoch), h.group.generation
		}
	case !slices.ContainsFunc(k.giveUp, func(tp TopicPartition) bool { return holds(me.revoking, tp) }):
		k.giveUpBy, k.giveUp = now.Add(me.kafka.rebalance), slices.Clone(me.revoking)
	}
	a = ConsumerBeaten{Member: b.Member, Epoch: k.epoch, Interval: b.interval}
	k.repeated = 0
	if b.Epoch != epochJoin && slices.ContainsFunc(me.revoking, func(tp TopicPartition) bool { return k.later(tp, b.Epoch) }) {
		a.Epoch, k.repeated = b.Epoch, b.Epoch // see toldLater
	}
	may := me.own
	if len(me.revoking) > 0 {
		// As in Kafka, new partitions come with the next epoch, after the old ones were given
		// up: with this one the member could not commit offsets of them.
		may = slices.DeleteFunc(slices.Clone(may), func(tp TopicPartition) bool { return k.since[tp] > a.Epoch })
	}
	if a.Tells = b.complete() || k.told == nil || !slices.Equal(k.told, may); a.Tells {
		k.told = append([]TopicPartition{}, may...) // not nil: that it has nothing is told once, too
		a.Assigned = k.told
		for _, tp := range may {
			if _, told := k.toldAt[tp]; !told {
				k.toldAt[tp] = a.Epoch
			}
		}
	}
	return a, nil
}

// leave removes a member. A static member that leaves for a while keeps its partitions, but not
// those that it was to give up.
func (h *host) leave(ctx context.Context, b ConsumerBeat) error {
	return h.submit(ctx, func(members []peerMember) ([]peerMember, bool, error) {
		i := slices.IndexFunc(members, func(m peerMember) bool { return m.kafka.host != "" && m.id == b.Member })
		if b.Instance != nil {
			switch owner, is := (membership{members: members}).instance(*b.Instance); {
			case !is:
				return nil, false, fmt.Errorf("%w: the group has no member with the instance id %q", ErrUnknownMember, *b.Instance)
			case owner.id != b.Member:
				return nil, false, fmt.Errorf("%w: the instance id %q is that of member %q now", ErrFencedInstance, *b.Instance, owner.id)
			}
		}
		if i < 0 {
			return nil, false, fmt.Errorf("%w: member %q is not in group %q", ErrUnknownMember, b.Member, h.name)
		}
		if b.Epoch == epochStaticLeave && members[i].kafka.instance != "" {
			// As in Kafka (consumerGroupStaticMemberGroupLeave): who is away does not give them up.
			changes := !members[i].kafka.away || len(members[i].revoking) > 0
			members[i].kafka.away, members[i].revoking = true, nil
			return members, changes, nil
		}
		return slices.Delete(members, i, i+1), true, nil
	})
}

// judgeEpoch decides whether a member may commit, or ask for, offsets with this epoch. Kafka asked
// for the latest epoch; since 4.3 each partition has its own (KIP-1251): the member may commit the
// offset of a partition that it has had since this epoch or an earlier one. h.mu is held.
func (h *host) judgeEpoch(member string, epoch int32, of []Committed) error {
	k := h.member(member)
	me, _ := h.group.find(member)
	if k == nil {
		return fmt.Errorf("%w: member %q is not in group %q", ErrUnknownMember, member, h.name)
	}
	current := k.epoch
	if current == 0 && epoch <= h.group.generation { // another host told it that epoch, or a later one: only a heartbeat says which
		current = epoch
	}
	stale := ErrStaleEpoch
	if me.kafka.classic { // as ConsumerGroup.validateMemberEpoch of Apache Kafka
		stale = ErrIllegalGeneration
	}
	if epoch > current || epoch < 0 {
		return fmt.Errorf("%w: %d; the member has %d", stale, epoch, current)
	}
	for _, o := range of {
		switch {
		case me.has(o.TopicPartition) && k.since[o.TopicPartition] <= epoch:
		case epoch == current && !me.has(o.TopicPartition) && !h.group.taken(o.TopicPartition):
		default:
			return fmt.Errorf("%w: %d; partition %d of topic %q is not the member's since then", stale, epoch, o.Partition, o.Name)
		}
	}
	return nil
}

func (r membership) taken(tp TopicPartition) bool {
	return slices.ContainsFunc(r.members, func(m peerMember) bool { return m.has(tp) })
}

// hostKnows finds the host that a member speaks to. If h is nil, the group has no such member; then
// consumer reports whether it has other members of the consumer protocol.
func (c *Coordinator) hostKnows(ctx context.Context, group, member string) (h *host, done func(), consumer bool, err error) {
	if h := c.hostIfAny(group); h != nil && h.knows(member) {
		return h, func() {}, true, nil
	}
	r, err := readMembership(ctx, c.log, group, c.silentFor)
	if err != nil && !errors.Is(err, ErrInconsistentProtocol) {
		return nil, nil, false, err
	}
	if m, is := r.find(member); !is || m.kafka.host == "" {
		return nil, nil, r.hosted && err == nil, nil
	}
	h, done, err = c.hostOf(group, "")
	if err != nil {
		return nil, nil, true, err
	}
	if err := h.load(ctx, member, false); err != nil {
		done()
		return nil, nil, true, err
	}
	return h, done, true, nil
}

// Hosted returns which of these groups have members that speak Kafka's protocol to a host: a store
// call for each thousand.
func (c *Coordinator) Hosted(ctx context.Context, names []string) (map[string]bool, error) {
	hosted := make(map[string]bool)
	for len(names) > 0 {
		page, err := c.readStates(ctx, names[:min(len(names), 1000)])
		if err != nil {
			return nil, fmt.Errorf("load groups: %w (%w)", ErrLoading, err)
		}
		for _, p := range page {
			hosted[p.name] = p.err == nil && p.state.ProtocolType == hostedProtocol
		}
		names = names[len(page):]
	}
	return hosted, nil
}

// CheckEpoch judges a request for offsets by a member of the consumer protocol. Members of other
// groups have no epoch, and are not checked.
func (c *Coordinator) CheckEpoch(ctx context.Context, group, member string, epoch int32) error {
	h, done, consumer, err := c.hostKnows(ctx, group, member)
	if err != nil || h == nil && !consumer {
		return err
	}
	if h == nil {
		return fmt.Errorf("%w: member %q is not in group %q", ErrUnknownMember, member, group)
	}
	defer done()
	h.mu.Lock()
	defer h.mu.Unlock()
	err = h.judgeEpoch(member, epoch, nil)
	if current := h.members[member]; err == nil && current.epoch != 0 && epoch != current.epoch && epoch != current.repeated {
		err = fmt.Errorf("%w: %d; the member has %d", ErrStaleEpoch, epoch, current.epoch)
	}
	return err
}

// commit commits offsets of one of the host's members: one store call, and more if the group
// changed meanwhile.
func (h *host) commit(ctx context.Context, r Commit, fit []Committed) error {
	for range peerTries {
		if err := h.settle(ctx); err != nil {
			return err
		}
		h.mu.Lock()
		version := h.group.version
		err := h.judgeEpoch(r.Member, r.Generation, fit)
		if me, is := h.group.find(r.Member); is && r.Classic && !me.kafka.classic { // its generation is no epoch (ConsumerGroup.validateOffsetCommit)
			err = fmt.Errorf("%w: it needs OffsetCommit 9 or newer", ErrClassicRequest)
		}
		if k := h.members[r.Member]; err == nil {
			me, _ := h.group.find(r.Member)
			k.deadline = time.Now().Add(me.session()) // a commit is as good as a heartbeat
		}
		h.mu.Unlock()
		if err != nil {
			return fmt.Errorf("commit offsets of group %q as %q: %w", r.Group, r.Member, err)
		}
		if len(fit) == 0 {
			return nil
		}
		_, err = h.log.Append(ctx, OffsetEntry(eventlog.KeyValue{Version: version}, r.Group, fit))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, eventlog.ErrStale):
			if err := h.readAgain(ctx, version); err != nil {
				return err
			}
		case errors.Is(err, eventlog.ErrUnsure):
			h.mu.Lock()
			if version == h.group.version { // if not, the commit is refused when it comes
				h.unsure = version
			}
			h.mu.Unlock()
			return fmt.Errorf("group %q: %w (%w)", h.name, ErrMoved, err)
		case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
			return fmt.Errorf("group %q: %w (%w)", h.name, ErrUnavailable, err)
		default:
			return err
		}
	}
	return fmt.Errorf("group %q: %w: other members changed the group %d times meanwhile", h.name, ErrUnavailable, peerTries)
}

// settle increments the group's version if a commit of unknown outcome may still be in flight: that
// commit is then refused, and cannot take back what is committed next.
func (h *host) settle(ctx context.Context) error {
	unsettled := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.unsure != 0 && h.unsure == h.group.version
	}
	if !unsettled() {
		return nil
	}
	return h.submit(ctx, func(members []peerMember) ([]peerMember, bool, error) { return members, unsettled(), nil })
}

// readAgain reads the group's state, unless the host has read or written another version than seen
// meanwhile.
func (h *host) readAgain(ctx context.Context, seen eventlog.Version) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.giveTurn()
	h.mu.Lock()
	current := h.group.version
	h.mu.Unlock()
	if current != seen {
		return nil
	}
	r, err := readMembership(ctx, h.log, h.name, h.others)
	if errors.Is(err, ErrInconsistentProtocol) {
		r, err = membership{}, nil
	}
	if err == nil {
		h.adopt(r)
		poke(h.wake)
	}
	return err
}
