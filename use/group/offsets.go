package group

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// commitTimeout bounds the wait for the store when offsets are committed; Kafka's
// offsets.commit.timeout.ms.
const commitTimeout = 5 * time.Second

type (
	// TopicPartition is a partition by its topic's id and its index in the topic.
	TopicPartition struct {
		Topic     eventlog.TopicID
		Partition int32
	}

	// Committed is how far a group has read a partition.
	Committed struct {
		TopicPartition
		Name        string          // of the topic, for people
		Offset      eventlog.Offset // of the next record to read; -1 when there is none
		LeaderEpoch int32           // of the last record read; -1 when unknown
		Metadata    string          // the client's own words
		Since       int32           // for Peer.Commit: Assigned.Since when the partition was read; 0: not checked. It is not stored
		Onward      bool            // for Peer.Commit: it continues from the group's position, and takes back nothing that SQL committed. It is not stored
	}

	// Commit is offsets to commit, by a member, or by anyone while the group has no members.
	Commit struct {
		Group, Member, Instance string
		Generation              int32 // negative: not as a member
		Offsets                 []Committed
	}
)

// Commit commits offsets: all of them in one entry, or none; those whose metadata is too large are
// left out, and have an error in the first result. If a partition is given more than once, its last
// offset counts. Commits of many members share flushes.
func (c *Coordinator) Commit(ctx context.Context, r Commit) ([]error, error) {
	if err := c.mayChange(r.Group); err != nil {
		return nil, err
	}
	errs := make([]error, len(r.Offsets))
	var fit []Committed
	mentioned := make(map[TopicPartition]int) // their index in fit
	for i, o := range r.Offsets {
		at, again := mentioned[o.TopicPartition]
		switch n := len(o.Metadata); {
		case n > offsetMetadataMax:
			errs[i] = fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrMetadataTooLarge, n, offsetMetadataMax)
		case again:
			fit[at] = o
		default:
			mentioned[o.TopicPartition] = len(fit)
			fit = append(fit, o)
		}
	}
	trusted := owned
	if r.Generation < 0 {
		trusted = knownEmpty
	}
	err := c.change(ctx, r.Group, trusted, func(ctx context.Context, g *group) (change, error) {
		if err := g.mayCommit(r); err != nil {
			return change{}, fmt.Errorf("commit offsets of group %q as %q: %w", r.Group, r.Member, err)
		}
		if len(fit) == 0 {
			return change{}, nil
		}
		if err := g.ready(ctx); err != nil {
			return change{}, err
		}
		return change{offsets: fit}, nil
	})
	return errs, err
}

// ready makes sure that this commit comes after all earlier ones. A group with members must be
// owned by this process. A group without members must be in the store without expired members, and
// this process must have incremented its version last: then an earlier commit of unknown outcome,
// of any process, is refused if it is still in flight.
func (g *group) ready(ctx context.Context) error {
	switch {
	case g.state != Empty:
		if err := g.own(ctx); err != nil {
			return err
		}
		return nil
	case g.version == 0 || g.expired || g.moved != g.version:
		return g.save(ctx)
	}
	return nil
}

// mayCommit decides who may commit: a member at the current generation, unless it must get its new
// assignment first; anyone without a generation while the group has no members, such as a consumer
// that assigns partitions to itself, or a tool.
func (g *group) mayCommit(r Commit) error {
	switch {
	case r.Generation < 0 && g.state == Empty:
		return nil
	case r.Generation < 0 && r.Member == "" && r.Instance == "":
		return fmt.Errorf("%w: the group has members, and the commit is not from any of them", ErrUnknownMember)
	case g.version == 0 && g.state == Empty:
		return fmt.Errorf("%w: there is no such group", ErrIllegalGeneration)
	}
	m, err := g.find(r.Member, r.Instance)
	if err != nil {
		return err
	}
	if r.Generation != g.generation {
		return fmt.Errorf("%w: %d; the group has generation %d", ErrIllegalGeneration, r.Generation, g.generation)
	}
	if g.state == CompletingRebalance || g.version == 0 { // this generation has no assignment yet, or no generation ever had one
		return ErrRebalancing
	}
	if g.owned {
		g.touch(m) // a commit is as good as a heartbeat
	}
	return nil
}

// DeleteOffsets deletes offsets of a group, except of topics that its members read: those have an
// error in the first result.
func (c *Coordinator) DeleteOffsets(ctx context.Context, name string, which []Committed) ([]error, error) {
	if err := c.mayChange(name); err != nil {
		return nil, err
	}
	errs := make([]error, len(which))
	err := c.change(ctx, name, nothing, func(ctx context.Context, g *group) (change, error) {
		if g.version == 0 && g.state == Empty {
			return change{}, fmt.Errorf("delete offsets of group %q: %w", name, ErrNotFound)
		}
		if g.state != Empty && g.protocolType != consumerProtocol {
			return change{}, fmt.Errorf("delete offsets of group %q: %w: it has %d members of type %q", name, ErrNotEmpty, len(g.members), g.protocolType)
		}
		ch := change{gone: true}
		if g.version == 0 {
			return ch, nil // its first members are joining
		}
		reads := g.reads()
		for i, o := range which {
			if reads(o.Name) {
				errs[i] = fmt.Errorf("%w %q", ErrSubscribed, o.Name)
			} else {
				ch.offsets = append(ch.offsets, o)
			}
		}
		if g.state == Empty && len(ch.offsets) > 0 {
			return ch, g.ready(ctx)
		}
		return ch, nil
	})
	return errs, err
}

// change is offsets to put or to delete.
type change struct {
	offsets []Committed
	gone    bool

	ticket  *eventlog.Ticket
	life    int
	version eventlog.Version // that it checks
}

// change locks the group, lets decide read it, and commits what decide returns; it tries again if
// another process wrote first. The group is not locked during the commit, so that many commits are
// in flight at the same time.
func (c *Coordinator) change(ctx context.Context, name string, trusted trust, decide func(context.Context, *group) (change, error)) error {
	// A client that disconnects does not end the wait: an unknown outcome would cost the group a
	// reload.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return retryMoved(ctx, func() error { return c.changeOnce(ctx, name, trusted, decide) })
}

func (c *Coordinator) changeOnce(ctx context.Context, name string, trusted trust, decide func(context.Context, *group) (change, error)) error {
	g, err := c.lock(ctx, name, trusted)
	if err != nil {
		return err
	}
	ch, err := decide(ctx, g)
	if err != nil || len(ch.offsets) == 0 {
		g.unlock()
		return err
	}
	g.submit(ctx, &ch)
	g.unlock()
	_, err = ch.ticket.Wait(ctx)
	c.stay(g)
	defer g.unlock()
	return g.land(ch, err)
}

// submit submits a change. The caller holds the group's lock, so that changes enter the log in the
// order in which they were decided: of several commits in flight the last submitted wins.
func (g *group) submit(ctx context.Context, ch *change) {
	ch.life, ch.version = g.life, g.version
	e := OffsetEntry(eventlog.KeyValue{Version: g.version}, g.name, ch.offsets)
	if ch.gone {
		for i := range e.Puts {
			e.Puts[i].Value = nil
		}
	}
	ch.ticket = g.c.log.Submit(ctx, e)
}

// OffsetEntry returns the entry that commits offsets of a group, for callers without a Coordinator
// or a Peer. State is what Log.Get found under StateKey: ErrStale means that the group has changed
// since. A group that does not exist is created.
func OffsetEntry(state eventlog.KeyValue, group string, offsets []Committed) eventlog.Entry {
	e := eventlog.Entry{Checks: []eventlog.Check{{Key: StateKey(group), Version: state.Version}}}
	version := state.Version
	if version == 0 {
		version = version.Next()
		e.Puts = append(e.Puts, eventlog.Put{Key: StateKey(group), Version: version, Value: []byte(`{"generation":0}`)})
	}
	for _, o := range offsets {
		e.Puts = append(e.Puts, eventlog.Put{Key: OffsetKey(group, o.TopicPartition), Version: version, Value: o.encode()})
	}
	return e
}

// land handles the outcome of a change.
func (g *group) land(ch change, err error) error {
	switch {
	case err == nil:
		return nil
	case ch.life == g.life && ch.version == g.version:
		return g.refused(err)
	case errors.Is(err, eventlog.ErrUnsure) && ch.version == g.moved:
		g.moved = 0 // the group was read again meanwhile
	}
	return fmt.Errorf("group %q: %w (%w)", g.name, ErrMoved, err)
}

func (o Committed) encode() []byte {
	value, err := json.Marshal(storedOffset{Topic: o.Name, Partition: o.Partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata})
	if err != nil {
		panic(fmt.Sprintf("committed offset %+v: %v", o, err)) // numbers and strings always encode
	}
	return value
}

// Fetch returns what a group has committed for some partitions, in their order; the offset is -1
// where nothing is committed. Given nil, it returns all committed offsets of topics that still
// exist, by name and partition. It reads the store, since peers commit there as well: one trip, and
// one per thousand offsets of the group.
func (c *Coordinator) Fetch(ctx context.Context, name string, which []TopicPartition) ([]Committed, error) {
	return c.FetchWithin(ctx, name, which, nil)
}

// FetchWithin is Fetch, but calls room before it reads, with the estimated bytes of memory that it
// needs; a negative number gives bytes back. An error of room ends the fetch. A nil room: no limit.
func (c *Coordinator) FetchWithin(ctx context.Context, name string, which []TopicPartition, room func(bytes int) error) ([]Committed, error) {
	if err := c.serves(name); err != nil {
		return nil, err
	}
	wanted := make(map[TopicPartition]bool, len(which))
	for _, tp := range which {
		wanted[tp] = true
	}
	found := make(map[TopicPartition]Committed)
	var offsets []stored
	err := listWithin(ctx, c.log, offsetKeysOf(name), committedCost+offsetMetadataMax, room, func(kv eventlog.KeyValue) (keeps int, err error) {
		_, o, err := parseOffset(kv)
		if err != nil || which != nil && !wanted[o.TopicPartition] {
			return 0, err
		}
		found[o.TopicPartition], offsets = o.Committed, append(offsets, o)
		return committedCost + len(o.Metadata), nil
	})
	if err != nil {
		return nil, fmt.Errorf("load offsets of group %q: %w (%w)", name, ErrLoading, err)
	}
	if which == nil {
		if err := c.knowTopics(ctx, offsets); err != nil {
			return nil, err
		}
		all := slices.DeleteFunc(slices.Collect(maps.Values(found)), func(o Committed) bool { return !c.hasTopic(o.Topic) })
		slices.SortFunc(all, func(a, b Committed) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
		})
		return all, nil
	}
	out := make([]Committed, len(which))
	for i, tp := range which {
		o, ok := found[tp]
		if !ok {
			o = Committed{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
		}
		out[i] = o
	}
	return out, nil
}

// listedPage is how many keys one trip reads if memory is counted.
const listedPage = 64

// listWithin visits all keys under a prefix. Before each trip it asks for memory for a page of the
// largest values, and afterwards gives back what the visits do not keep.
func listWithin(ctx context.Context, log *eventlog.Log, prefix string, largest int, room func(bytes int) error, visit func(eventlog.KeyValue) (keeps int, err error)) error {
	if room == nil {
		return log.ListAll(ctx, prefix, func(kv eventlog.KeyValue) error {
			_, err := visit(kv)
			return err
		})
	}
	kept, asked := 0, 0
	settle := func() error {
		err := room(kept - asked)
		asked, kept = 0, 0
		return err
	}
	err := log.ListPages(ctx, prefix, listedPage, func() error {
		if err := settle(); err != nil {
			return err
		}
		asked = listedPage * largest
		return room(asked)
	}, func(kv eventlog.KeyValue) error {
		n, err := visit(kv)
		kept += n
		return err
	})
	return errors.Join(err, settle())
}

// committedCost estimates the memory of a committed offset, here and in an answer.
const committedCost = 256

// stored is a committed offset in the store.
type stored struct {
	Committed
	age time.Duration
}

// listOffsets reads all offsets of a group: one store call per thousand.
func listOffsets(ctx context.Context, log *eventlog.Log, group string, visit func(stored) error) error {
	err := log.ListAll(ctx, offsetKeysOf(group), func(kv eventlog.KeyValue) error {
		_, o, err := parseOffset(kv)
		if err == nil {
			err = visit(o)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("load offsets of group %q: %w (%w)", group, ErrLoading, err)
	}
	return nil
}

func (c *Coordinator) hasTopic(id eventlog.TopicID) bool {
	_, err := c.log.TopicByID(id)
	return !errors.Is(err, eventlog.ErrUnknownTopic)
}

// reads returns a function that reports whether the members read a topic. Consumers whose
// subscription cannot be read may read any topic. For members that are not consumers it is not
// known: false.
func (g *group) reads() func(topic string) bool {
	topics := make(map[string]bool)
	for _, m := range g.members {
		if g.protocolType != consumerProtocol {
			break
		}
		subscription, ok := subscribed(m.metadata(g.protocol))
		if !ok {
			return func(string) bool { return true }
		}
		for _, t := range subscription {
			topics[t] = true
		}
	}
	return func(topic string) bool { return topics[topic] }
}
