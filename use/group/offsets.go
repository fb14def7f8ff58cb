package group

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
)

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
		Generation              int32  // negative: not as a member
		By                      string // as Join.By
		Classic                 bool   // the request knows only the classic protocol
		Reset                   bool   // an operator sets them, not a reader: the audit records that
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
	classic := func() error {
		return c.change(ctx, r.Group, trusted, func(ctx context.Context, g *group) (change, error) {
			if err := g.mayCommit(r); err != nil {
				return change{}, fmt.Errorf("commit offsets of group %q as %q: %w", r.Group, r.Member, err)
			}
			if len(fit) == 0 {
				return change{}, nil
			}
			if g.version == 0 && g.state == Empty {
				g.maker = r.By
			}
			if err := g.ready(ctx); err != nil {
				return change{}, err
			}
			if !r.Reset {
				return change{offsets: fit}, nil
			}
			told, err := g.tellReset(ctx, fit, true)
			return change{offsets: fit, told: told}, err
		})
	}
	// A client that disconnects does not end the wait, as in change.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(c.log))
	defer cancel()
	return errs, c.atHost(ctx, r.Group, r.Member, func(h *host) error { return h.commit(ctx, r, fit) }, classic)
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
		if len(ch.offsets) == 0 {
			return ch, nil
		}
		if g.state == Empty {
			if err := g.ready(ctx); err != nil {
				return ch, err
			}
		}
		err := c.forgetBeside(ctx, []string{name}, places(ch.offsets))
		if err != nil {
			return ch, fmt.Errorf("delete offsets of group %q: %w (%w)", name, ErrLoading, err)
		}
		if ch.puts, err = g.unbegin(ctx, ch.offsets); err != nil {
			return ch, err
		}
		ch.told, err = g.tellReset(ctx, ch.offsets, false)
		return ch, err
	})
	return errs, err
}

// resetTold is how many offsets an event names.
const resetTold = 100

// offsetsTold are offsets as an event has them.
type offsetsTold struct {
	Offsets int          `json:"offsets"`         // how many were set or deleted
	First   []offsetTold `json:"first,omitempty"` // of them; an offset of -1: nothing was committed
}

type offsetTold struct {
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Offset    eventlog.Offset `json:"offset"`
}

// tellReset returns the audit's event for offsets that somebody sets or, with set false, deletes;
// none if that changes nothing. It reads what the offsets were: a few store calls.
func (g *group) tellReset(ctx context.Context, offsets []Committed, set bool) ([]eventlog.Batch, error) {
	if !audit.Of(g.c.log).Records(ctx) {
		return nil, nil
	}
	first := offsets[:min(len(offsets), resetTold)]
	were, err := g.c.Fetch(ctx, g.name, places(first))
	if err != nil {
		return nil, err
	}
	before, after := offsetsTold{Offsets: len(offsets)}, offsetsTold{Offsets: len(offsets)}
	changes := len(offsets) > len(first)
	for i, o := range first {
		if !set {
			o.Offset = -1
		}
		changes = changes || were[i].Offset != o.Offset
		before.First = append(before.First, offsetTold{o.Name, o.Partition, were[i].Offset})
		after.First = append(after.First, offsetTold{o.Name, o.Partition, o.Offset})
	}
	if !changes {
		return nil, nil
	}
	event := audit.Event{Verb: audit.GroupReset, Object: g.name, Before: before}
	if set {
		event.After = after
	}
	told, has, err := audit.Of(g.c.log).Batch(ctx, StateKey(g.name), event)
	if !has {
		return nil, err
	}
	return []eventlog.Batch{told}, nil
}

// places returns the partitions of offsets; never nil.
func places(offsets []Committed) []TopicPartition {
	of := make([]TopicPartition, 0, len(offsets))
	for _, o := range offsets {
		of = append(of, o.TopicPartition)
	}
	return of
}

// unbegin returns the puts that delete where the group began in these partitions (storedStart): one
// store call, or one for each 4 MiB of what is stored there.
func (g *group) unbegin(ctx context.Context, of []Committed) (puts []eventlog.Put, err error) {
	var keys []string
	partitions := make(map[string][]int32)
	for _, o := range of {
		key := OffsetKey(g.name, TopicPartition{o.Topic, allPartitions})
		if partitions[key] == nil {
			keys = append(keys, key)
		}
		partitions[key] = append(partitions[key], o.Partition)
	}
	err = g.c.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		_, o, err := parseStart(kv)
		if err != nil {
			return err
		}
		for _, n := range partitions[kv.Key] {
			if int(n) < len(o.ends) {
				o.ends[n] = -1
			}
		}
		put := eventlog.Put{Key: kv.Key, Version: kv.Version + 1}
		if slices.ContainsFunc(o.ends, func(at eventlog.Offset) bool { return at >= 0 }) {
			put.Value = storedStart{Topic: o.Name, LeaderEpoch: o.LeaderEpoch, Ends: o.ends}.encode()
		}
		puts = append(puts, put)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load offsets of group %q: %w (%w)", g.name, ErrLoading, err)
	}
	return puts, nil
}

// change is offsets to put or to delete.
type change struct {
	offsets []Committed
	gone    bool
	puts    []eventlog.Put   // of other keys
	told    []eventlog.Batch // events of the audit

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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(c.log))
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
	e.Puts, e.Batches = append(e.Puts, ch.puts...), ch.told
	ch.ticket = g.c.log.Submit(ctx, e)
}

// OffsetEntry returns the entry that commits offsets of a group, for callers without a Coordinator
// or a Peer. state is what Log.Get found under StateKey: ErrStale means that the group has changed
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
// exist, by name and partition. A group that began at the end counts as if it had committed that.
// It reads the store, since peers commit there as well: two trips, and one per thousand offsets.
func (c *Coordinator) Fetch(ctx context.Context, name string, which []TopicPartition) ([]Committed, error) {
	found, err := c.FetchEach(ctx, []Wanted{{name, which}}, nil)
	if err != nil {
		return nil, err
	}
	return found[0].Offsets, found[0].Err
}

type (
	// Wanted is a group whose committed offsets are asked for.
	Wanted struct {
		Group string
		Of    []TopicPartition // nil: all
	}

	// Fetched is the answer to a Wanted. Err: a group of this name cannot be served.
	Fetched struct {
		Offsets []Committed
		Err     error
	}
)

// FetchEach is Fetch for any number of groups: a few trips, and one per thousand offsets that are
// asked for (all offsets of a group without Wanted.Of). It calls room before it reads, with the
// estimated bytes of memory that it needs; a negative number gives bytes back. An error of room
// ends it. A nil room: no limit.
func (c *Coordinator) FetchEach(ctx context.Context, wants []Wanted, room func(bytes int) error) ([]Fetched, error) {
	out := make([]Fetched, len(wants))
	f := fetching{c: c, room: room, found: make(map[string]map[TopicPartition]Committed)}
	var some []Wanted
	var all []string
	for i, w := range wants {
		if out[i].Err = c.serves(w.Group); out[i].Err != nil {
			continue
		}
		if f.found[w.Group] == nil {
			f.found[w.Group] = make(map[TopicPartition]Committed)
		}
		if w.Of == nil {
			all = append(all, w.Group)
		} else {
			some = append(some, w)
		}
	}
	err := f.readAll(ctx, all)
	if err == nil {
		err = f.readSome(ctx, some)
	}
	if err != nil {
		return nil, fmt.Errorf("load offsets of %d groups: %w (%w)", len(wants), ErrLoading, err)
	}
	if len(all) > 0 {
		if err := c.knowTopics(ctx, f.offsets); err != nil {
			return nil, err
		}
	}
	for i, w := range wants {
		found := f.found[w.Group]
		switch {
		case out[i].Err != nil:
		case w.Of == nil:
			out[i].Offsets = slices.DeleteFunc(slices.Collect(maps.Values(found)), func(o Committed) bool { return !c.hasTopic(o.Topic) })
			slices.SortFunc(out[i].Offsets, func(a, b Committed) int {
				return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
			})
		default:
			out[i].Offsets = make([]Committed, len(w.Of))
			for k, tp := range w.Of {
				o, is := found[tp]
				if !is {
					o = Committed{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
				}
				out[i].Offsets[k] = o
			}
		}
	}
	return out, nil
}

// fetching is what FetchEach has read.
type fetching struct {
	c       *Coordinator
	room    func(bytes int) error
	found   map[string]map[TopicPartition]Committed // by group
	offsets []stored                                // of groups of which all are asked for
}

// readAll reads all offsets of groups.
func (f *fetching) readAll(ctx context.Context, groups []string) error {
	if len(groups) == 0 {
		return nil
	}
	var offsets, starts []string
	for _, name := range groups {
		offsets, starts = append(offsets, offsetKeysOf(name)), append(starts, startKeysOf(name))
	}
	err := listEach(ctx, f.c.log, offsetPrefix, offsets, listedPage, committedCost+offsetMetadataMax, f.room, func(kv eventlog.KeyValue) (keeps int, err error) {
		name, o, err := parseOffset(kv)
		if err != nil {
			return 0, err
		}
		f.found[name][o.TopicPartition], f.offsets = o.Committed, append(f.offsets, o)
		return committedCost + len(o.Metadata), nil
	})
	if err != nil {
		return err
	}
	return listEach(ctx, f.c.log, startPrefix, starts, startsFew, startBytes, f.room, func(kv eventlog.KeyValue) (keeps int, err error) {
		name, began, err := parseStart(kv)
		if err != nil {
			return 0, err
		}
		f.offsets = append(f.offsets, began)
		for n := range began.ends {
			if o, is := began.at(int32(n)); is && f.begin(name, o) {
				keeps += committedCost
			}
		}
		return keeps, nil
	})
}

// begin notes where a group began in a partition, unless it has committed an offset there.
func (f *fetching) begin(group string, o Committed) bool {
	_, committed := f.found[group][o.TopicPartition]
	if !committed {
		f.found[group][o.TopicPartition] = o
	}
	return !committed
}

// readSome reads the offsets of some partitions, and where groups began in the topics of those in
// which nothing is committed.
func (f *fetching) readSome(ctx context.Context, wants []Wanted) error {
	total := 0
	for _, w := range wants {
		total += len(w.Of)
	}
	keys := make([]string, 0, total)
	for _, w := range wants {
		var topic eventlog.TopicID
		under := "" // of the keys of the topic: made once, because a request may name very many partitions
		for _, tp := range w.Of {
			if under == "" || tp.Topic != topic {
				topic, under = tp.Topic, offsetKeysOf(w.Group)+tp.Topic.String()+"/"
			}
			keys = append(keys, under+strconv.Itoa(int(tp.Partition)))
		}
	}
	err := f.get(ctx, keys, func(kv eventlog.KeyValue) (keeps int, err error) {
		name, o, err := parseOffset(kv)
		if err != nil {
			return 0, err
		}
		f.found[name][o.TopicPartition] = o.Committed
		return committedCost + len(o.Metadata), nil
	})
	if err != nil {
		return err
	}
	keys = keys[:0]
	lacks := make(map[string][]int32) // partitions without an offset, by the key of where the group began
	for _, w := range wants {
		var topic eventlog.TopicID
		key := ""
		for _, tp := range w.Of {
			if _, is := f.found[w.Group][tp]; is {
				continue
			}
			if key == "" || tp.Topic != topic {
				topic, key = tp.Topic, OffsetKey(w.Group, TopicPartition{tp.Topic, allPartitions})
			}
			if lacks[key] == nil {
				keys = append(keys, key)
			}
			lacks[key] = append(lacks[key], tp.Partition)
		}
	}
	return f.get(ctx, keys, func(kv eventlog.KeyValue) (keeps int, err error) {
		name, began, err := parseStart(kv)
		if err != nil {
			return 0, err
		}
		for _, n := range lacks[kv.Key] {
			if o, is := began.at(n); is && f.begin(name, o) {
				keeps += committedCost
			}
		}
		return keeps, nil
	})
}

// fetchBytes is about how many bytes of values one trip reads if memory is counted.
const fetchBytes = 256 << 10

// get visits those of some keys that exist.
func (f *fetching) get(ctx context.Context, keys []string, visit func(eventlog.KeyValue) (keeps int, err error)) error {
	m := memo{room: f.room, each: fetchBytes}
	err := f.c.log.GetPages(ctx, keys, fetchBytes, m.before, func(kv eventlog.KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		n, err := visit(kv)
		m.kept += n
		return err
	})
	return errors.Join(err, m.settle())
}

// listedPage is how many keys one trip reads if memory is counted.
const listedPage = 64

// listWithin visits all keys under a prefix. Before each trip it asks for memory for a page of the
// largest values, and afterwards gives back what the visits do not keep.
func listWithin(ctx context.Context, log *eventlog.Log, prefix string, largest int, room func(bytes int) error, visit func(eventlog.KeyValue) (keeps int, err error)) error {
	return listEach(ctx, log, prefix, []string{prefix}, listedPage, largest, room, visit)
}

// listEach is listWithin for several prefixes, which all begin with the parameter under.
func listEach(ctx context.Context, log *eventlog.Log, under string, prefixes []string, page, largest int, room func(bytes int) error, visit func(eventlog.KeyValue) (keeps int, err error)) error {
	m := memo{room: room, each: page * largest}
	if room == nil && largest < startBytes {
		page = 1000
	}
	err := log.ListEach(ctx, under, prefixes, page, m.before, func(kv eventlog.KeyValue) error {
		n, err := visit(kv)
		m.kept += n
		return err
	})
	return errors.Join(err, m.settle())
}

// memo asks for memory before each trip, and afterwards gives back what is not kept.
type memo struct {
	room  func(bytes int) error // nil: no limit
	each  int                   // bytes that a trip may bring
	asked int
	kept  int
}

func (m *memo) before() error {
	if err := m.settle(); err != nil || m.room == nil {
		return err
	}
	m.asked = m.each
	return m.room(m.asked)
}

func (m *memo) settle() error {
	if m.room == nil {
		return nil
	}
	err := m.room(m.kept - m.asked)
	m.asked, m.kept = 0, 0
	return err
}

// committedCost estimates the memory of a committed offset, here and in an answer.
const committedCost = 256

// stored is a committed offset in the store or, for allPartitions, where the group began.
type stored struct {
	Committed
	ends []eventlog.Offset // see storedStart
	age  time.Duration
}

// listOffsets reads all offsets of a group, and where it began: two store calls, and one per
// thousand offsets.
func listOffsets(ctx context.Context, log *eventlog.Log, group string, visit func(stored) error) error {
	err := log.ListAll(ctx, offsetKeysOf(group), func(kv eventlog.KeyValue) error {
		_, o, err := parseOffset(kv)
		if err == nil {
			err = visit(o)
		}
		return err
	})
	if err == nil {
		err = begun(ctx, log, startKeysOf(group), func(_ string, o stored) error { return visit(o) })
	}
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
		s, ok := readSubscription(m.metadata(g.protocol))
		if !ok {
			return func(string) bool { return true }
		}
		for _, t := range s.topics {
			topics[t] = true
		}
	}
	return func(topic string) bool { return topics[topic] }
}
