package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// offsetMetadataMax bounds the metadata of a committed offset, in bytes. It is the default of
// Kafka's offset.metadata.max.bytes.
const offsetMetadataMax = 4096

// unsureMax bounds the attempts at a commit whose outcomes stay unknown.
const unsureMax = 3

// Commit commits offsets, all in one entry or none: one store call, two more if the group changed
// since, and a few more if another leader epoch began (recall). Commits of one partition must come
// one after the other; commits of different partitions may be in flight at the same time, and share
// flushes.
//
// ErrFenced: a partition is not this peer's any more, or Since shows that it was released and
// assigned again, or begins again; nothing was committed. ErrUnavailable: certainly nothing was
// committed. eventlog.ErrUnsure: perhaps they were committed; committing the same or more again is
// harmless.
//
// Batches are appended in the same entry. Then the first offset needs Metadata that was never used
// before: a repeated commit, in this call or a later one, finds it in the store and appends nothing
// twice. That costs one more trip.
func (p *Peer) Commit(ctx context.Context, offsets []Committed, batches ...eventlog.Batch) error {
	if len(offsets) == 0 && len(batches) == 0 {
		return nil
	}
	if len(batches) == 0 {
		return p.CommitWith(ctx, offsets, nil)
	}
	return p.CommitWith(ctx, offsets, func(_ context.Context, e *eventlog.Entry) error {
		e.Batches = batches
		return nil
	})
}

// CommitWith is Commit with other changes in the same entry, which add adds. It calls add for each
// attempt, once no earlier attempt can still be applied. An error of add is returned in an
// *AddError; then nothing was committed, now or by an earlier call.
func (p *Peer) CommitWith(ctx context.Context, offsets []Committed, add func(context.Context, *eventlog.Entry) error) error {
	if add != nil && (len(offsets) == 0 || offsets[0].Metadata == "") {
		panic(fmt.Sprintf("commit other changes with the offsets %+v, without metadata to recognize them by", offsets))
	}
	if err := p.commit(ctx, offsets, add); err != nil {
		return fmt.Errorf("commit %d offsets of group %q as %q: %w", len(offsets), p.cfg.Group, p.id, err)
	}
	return nil
}

func (p *Peer) commit(ctx context.Context, offsets []Committed, add func(context.Context, *eventlog.Entry) error) (err error) {
	grants, offsets, err := p.granted(offsets)
	if err != nil {
		return err
	}
	unsure, marked := 0, false
	defer func() {
		if err != nil && unsure > 0 && !errors.Is(err, eventlog.ErrUnsure) { // an earlier attempt may have happened, whatever the outcome of a later one
			err = fmt.Errorf("%w: an earlier attempt may have succeeded (%w)", eventlog.ErrUnsure, err)
		}
	}()
	for range peerTries {
		if p.hasUnsureCommit() {
			if err := p.fence(ctx); err != nil && !errors.Is(err, ErrFenced) {
				return fmt.Errorf("%w: the outcome of an earlier commit is not known yet (%v)", ErrUnavailable, err)
			}
		}
		if err := p.recalled(ctx); err != nil {
			return err
		}
		if !marked { // once: an attempt must repeat the same bytes
			if err := p.mark(ctx, grants, offsets); err != nil {
				return err
			}
			marked = true
		}
		version, same, err := p.mayCommit(grants)
		if err != nil {
			return err
		}
		if add != nil {
			// A commit in flight checks an old version of the group. So if its offset is not in the
			// store now, it never will be.
			kept, err := p.kept(ctx, offsets[0])
			if err != nil {
				return err
			}
			if kept {
				p.advance(grants, offsets, same)
				return nil
			}
		}
		e := OffsetEntry(eventlog.KeyValue{Version: version}, p.cfg.Group, offsets)
		e.Checks = append(e.Checks, same)
		if add != nil {
			if err := add(ctx, &e); err != nil {
				unsure = 0 // no earlier attempt can happen any more
				return &AddError{err}
			}
		}
		p.sends(offsets, version)
		if _, err = p.log.Append(ctx, e); !errors.Is(err, eventlog.ErrUnsure) {
			p.knows(offsets, version)
		}
		switch {
		case err == nil:
			p.advance(grants, offsets, same)
			return nil
		case errors.Is(err, eventlog.ErrStale):
			if err := p.refresh(ctx, version); err != nil {
				return err
			}
		case errors.Is(err, eventlog.ErrUnsure):
			// Increment the group's version: if the commit is still in flight it is refused. Then
			// the outcome can be read, and it is safe to commit again.
			p.commitUnsure(version)
			if unsure++; unsure == unsureMax {
				return err
			}
			if fenceErr := p.fence(ctx); fenceErr != nil {
				return fmt.Errorf("%w (%v)", err, fenceErr) // whatever fenceErr is, the commit's outcome stays unknown
			}
		case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrClosed):
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		default:
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d attempts: other members changed the group each time", ErrUnavailable, peerTries)
}

// kept reports whether the store holds exactly this offset: one store call.
func (p *Peer) kept(ctx context.Context, o Committed) (bool, error) {
	kv, err := p.log.Get(ctx, OffsetKey(p.cfg.Group, o.TopicPartition))
	if err != nil {
		return false, fmt.Errorf("check whether it was committed before: %w (%w)", ErrUnavailable, err)
	}
	return bytes.Equal(kv.Value, o.encode()), nil
}

// granted finds the offsets' partitions among the peer's, and fills in the names of their topics.
func (p *Peer) granted(offsets []Committed) ([]*Assigned, []Committed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grants, named := make([]*Assigned, len(offsets)), make([]Committed, len(offsets))
	for i, o := range offsets {
		a := p.held[o.TopicPartition]
		switch {
		case p.end != nil:
			return nil, nil, p.end
		case a == nil || o.Since != 0 && o.Since != a.Since:
			return nil, nil, fmt.Errorf("%w: topic %q (%v), partition %d", ErrFenced, o.Name, o.Topic, o.Partition)
		case len(o.Metadata) > offsetMetadataMax:
			return nil, nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrMetadataTooLarge, len(o.Metadata), offsetMetadataMax)
		}
		o.Name = a.Topic
		grants[i], named[i] = a, o
	}
	return grants, named, nil
}

// mayCommit checks that the peer still has what it had when the commit began. It returns the
// version that the group must still be at, and the check that the store was not rewound since the
// positions were read: a rewound store may lack commits from which the peer goes on.
func (p *Peer) mayCommit(grants []*Assigned) (eventlog.Version, eventlog.Check, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := eventlog.InEpoch(p.epoch)
	for _, a := range grants {
		switch {
		case p.end != nil:
			return 0, same, p.end
		case p.held[a.TopicPartition] != a:
			return 0, same, fmt.Errorf("%w: topic %q (%v), partition %d", ErrFenced, a.Topic, a.TopicPartition.Topic, a.Partition)
		}
	}
	return p.group.version, same, nil
}

// recalled calls recall, if the log has entered another leader epoch.
func (p *Peer) recalled(ctx context.Context) error {
	if p.inEpoch(p.log.LeaderEpoch()) {
		return nil
	}
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.giveTurn()
	if err := p.recall(ctx); err != nil {
		return fmt.Errorf("%w: the store may have been rewound, and the group's positions cannot be read (%w)", ErrUnavailable, err)
	}
	return nil
}

func (p *Peer) inEpoch(epoch int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch == epoch
}

// recall reads the positions again after a leader epoch began, as the store may have been rewound:
// up to three store calls for a thousand partitions. If the store has lost a commit of a partition,
// the partition begins again at the position that is left, with another Since: what was done in the
// same change is lost as well (a reaction, a dead letter, the handler's transaction), and must be
// done again. The caller has the turn.
func (p *Peer) recall(ctx context.Context) error {
	epoch := p.log.LeaderEpoch()
	if p.inEpoch(epoch) {
		return nil
	}
	p.mu.Lock()
	before := make(map[TopicPartition]Assigned, len(p.held))
	for tp, a := range p.held {
		before[tp] = *a
	}
	p.recalling, p.unsettled = epoch, false
	p.mu.Unlock()
	left, bases, err := p.left(ctx, slices.Collect(maps.Keys(before)))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recalling = noEpoch
	if err != nil {
		return err
	}
	some := false
	for tp, was := range before {
		a, o := p.held[tp], left[tp]
		if a == nil || a.Since != was.Since {
			continue // it was given back meanwhile
		}
		if base, known := bases[tp]; known && a.base != nil {
			a.base = &base
		}
		is := o.Offset >= 0
		// If no position is left, a group that begins at the end stays where it is: to begin again,
		// it would pass over records that it has not handled.
		if !was.stored || is && o.Offset >= was.reached || !is && p.cfg.FromLatest {
			continue
		}
		p.logger.Warn("the store was rewound, and has lost the group's position: continuing with the one that is left",
			"topic", a.Topic, "partition", a.Partition, "position", was.reached, "left", max(o.Offset, 0))
		again := &Assigned{Topic: a.Topic, TopicPartition: tp, Log: a.Log, Since: a.Since + 1, Epoch: epoch, Position: max(o.Offset, 0), reached: max(o.Offset, 0), stored: is}
		if o.LeaderEpoch >= 0 && !p.log.EpochForgotten(o.LeaderEpoch) {
			again.Epoch = o.LeaderEpoch
		}
		if base, known := bases[tp]; known {
			again.base = &base
		}
		p.held[tp], some = again, true
	}
	if p.epoch = epoch; p.unsettled {
		p.epoch = noEpoch
	}
	if some {
		p.notify()
	}
	return nil
}

// left reads what the store has of the group's positions in some partitions, and their bases (see
// Beside).
func (p *Peer) left(ctx context.Context, of []TopicPartition) (map[TopicPartition]Committed, map[TopicPartition]int64, error) {
	if len(of) == 0 {
		return nil, nil, nil
	}
	found, err := p.fetch(ctx, p.cfg.Group, of)
	if err != nil {
		return nil, nil, err
	}
	left, offsets := make(map[TopicPartition]Committed, len(of)), make(map[TopicPartition]eventlog.Offset, len(of))
	for _, o := range found {
		if left[o.TopicPartition] = o; o.Offset >= 0 {
			offsets[o.TopicPartition] = o.Offset
		}
	}
	bases, err := p.placed(ctx, offsets, of)
	for tp, o := range left {
		at, is := offsets[tp]
		switch {
		case !is:
			o.Offset, o.LeaderEpoch = -1, -1
		case at != o.Offset: // SQL committed it
			o.Offset, o.LeaderEpoch = at, -1
		}
		left[tp] = o
	}
	return left, bases, err
}

// Claimed notes that a transaction of the handler has probably committed a position, beside this
// peer. The transaction began in the leader epoch that the parameter epoch says, or later. A peer
// that does not have the partition with this Since ignores the call.
func (p *Peer) Claimed(tp TopicPartition, since int32, position eventlog.Offset, epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.held[tp]; a != nil && a.Since == since {
		a.reached, a.stored = max(a.reached, position), true
		p.knownIn(epoch)
	}
}

// noEpoch is Peer.epoch while it is unknown.
const noEpoch = -1

// knownIn notes that a position was in the store in a leader epoch. If the positions were recalled
// in a later epoch, or are being recalled in one, they must be recalled once more: this position
// may be lost. p.mu is held.
func (p *Peer) knownIn(epoch int32) {
	p.unsettled = p.unsettled || epoch < p.recalling
	if p.epoch != epoch {
		p.epoch = noEpoch
	}
}

// advance notes what was committed in the leader epoch of a check.
func (p *Peer) advance(grants []*Assigned, offsets []Committed, in eventlog.Check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.knownIn(int32(in.Version) - 1)
	for i, a := range grants {
		a.Position, a.reached, a.stored = offsets[i].Offset, offsets[i].Offset, true
		if epoch := offsets[i].LeaderEpoch; epoch >= 0 {
			a.Epoch = epoch
		}
	}
}

// refresh reads the group's state again, unless it was read since version seen.
func (p *Peer) refresh(ctx context.Context, seen eventlog.Version) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.giveTurn()
	if p.membership().version != seen {
		return nil
	}
	r, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.adopt(r)
	poke(p.wake)
	return nil
}

func (p *Peer) commitUnsure(version eventlog.Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version == p.group.version { // if not, the commit is refused when it comes
		p.unsure = version
	}
}

// fence increments the group's version, so that commits of unknown outcome have either happened, or
// never will.
func (p *Peer) fence(ctx context.Context) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.giveTurn()
	return p.raise(ctx, p.hasUnsureCommit)
}

// raise increments the group's version if needed returns true. The caller has the turn.
func (p *Peer) raise(ctx context.Context, needed func() bool) error {
	err := p.change(ctx, func(members []peerMember) ([]peerMember, bool) { return members, needed() }, eventlog.Entry{})
	if errors.Is(err, ErrFenced) {
		p.finish(ErrFenced)
	}
	return err
}

// sends notes that a commit is being sent that checks a version of the group.
func (p *Peer) sends(offsets []Committed, version eventlog.Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range offsets {
		p.open[o.TopicPartition] = version
	}
}

// knows notes that the outcome of a commit is known.
func (p *Peer) knows(offsets []Committed, version eventlog.Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range offsets {
		if p.open[o.TopicPartition] == version {
			delete(p.open, o.TopicPartition)
		}
	}
}

// hasOpenCommit reports whether a commit in one of these partitions may still be in flight, and the
// store would take it.
func (p *Peer) hasOpenCommit(tps []TopicPartition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(tps, func(tp TopicPartition) bool {
		version, is := p.open[tp]
		return is && version == p.group.version
	})
}

func (p *Peer) hasUnsureCommit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unsure != 0 && p.unsure == p.group.version
}

// fill reads the positions of new partitions: two trips, one more with Beside, one per thousand
// offsets of the group, and up to two more if nothing is committed yet. Assignment does not show
// the partitions before that. When fill reads, no commit of the previous holder can follow any
// more: the holder has released the partitions, or its commits are refused. That is so, too, if
// this peer was the previous holder. ErrStale: other peers changed the group meanwhile, or stored
// where the group begins in the same topic; the caller may try again.
func (p *Peer) fill(ctx context.Context) error {
	// Release the partitions that Assignment has not shown yet and that another peer waits for.
	if stray := p.unfilled(peerMember.getRevoking); len(stray) > 0 {
		if err := p.release(ctx, stray); err != nil {
			return err
		}
	}
	given := p.unfilled(peerMember.getOwn)
	if p.hasOpenCommit(given) {
		if err := p.raise(ctx, func() bool { return p.hasOpenCommit(given) }); err != nil {
			return err
		}
		given = p.unfilled(peerMember.getOwn)
	}
	if len(given) == 0 || p.ended() != nil {
		return nil
	}
	r := p.membership()
	epoch := p.log.LeaderEpoch()
	keys, committed := make(map[TopicPartition]Committed), make(map[TopicPartition]eventlog.Offset)
	began := make(map[eventlog.TopicID]stored) // where the group began, in topics in which that was the end
	err := listOffsets(ctx, p.log, p.cfg.Group, func(o stored) error {
		if o.Partition == allPartitions {
			began[o.Topic] = o
		} else {
			keys[o.TopicPartition], committed[o.TopicPartition] = o.Committed, o.Offset
		}
		return nil
	})
	if err != nil {
		return err
	}
	bases, err := p.placed(ctx, committed, p.doubted(committed, began, given))
	if err != nil {
		return err
	}
	begun := make(map[eventlog.TopicID]bool) // topics in which the group has a position
	for tp := range committed {
		begun[tp.Topic] = true
	}
	for _, tp := range given { // what is committed counts, and where the group began if nothing is
		begun[tp.Topic] = begun[tp.Topic] || began[tp.Topic].Topic == tp.Topic
		if _, known := committed[tp]; known {
			continue
		}
		if o, is := began[tp.Topic].at(tp.Partition); is {
			keys[tp], committed[tp] = o, o.Offset
		}
	}
	var grants, fresh []*Assigned
	var starts []start
	for _, tp := range given {
		topic, err := p.log.TopicByID(tp.Topic)
		if err != nil || int(tp.Partition) >= len(topic.Partitions) {
			continue // the topic is gone, or grew in another process; the next poll finds out
		}
		a := &Assigned{Topic: topic.Name, TopicPartition: tp, Log: topic.Partitions[tp.Partition], Epoch: epoch, Since: r.generation}
		position, known := committed[tp]
		a.Position, a.stored = position, known
		switch key, is := keys[tp]; {
		case !known:
			fresh = append(fresh, a)
			starts = p.addStarts(starts, topic, tp, begun[tp.Topic])
		case is && key.Offset == position && key.LeaderEpoch >= 0 && !p.log.EpochForgotten(key.LeaderEpoch): // in other cases SQL committed it, or the epoch is unknown
			a.Epoch = key.LeaderEpoch
		}
		grants = append(grants, a)
	}
	begins, err := p.begin(ctx, r, starts, epoch)
	if err != nil {
		return err
	}
	for _, a := range fresh {
		a.Position = begins[a.TopicPartition]
	}
	p.mu.Lock()
	for _, a := range grants {
		a.reached = a.Position
		if base, known := bases[a.TopicPartition]; known {
			a.base = &base
		}
		if a.Position >= 0 {
			p.held[a.TopicPartition] = a
		}
	}
	p.mu.Unlock()
	p.notify()
	return nil
}

// doubted lists the partitions for which Beside must be asked for the group's offset: the given
// ones and, for a topic in which the group has not begun and no key has an offset, all partitions
// of that topic.
func (p *Peer) doubted(committed map[TopicPartition]eventlog.Offset, began map[eventlog.TopicID]stored, given []TopicPartition) []TopicPartition {
	if p.beside == nil {
		return nil
	}
	seen := make(map[eventlog.TopicID]bool)
	for tp := range committed {
		seen[tp.Topic] = true
	}
	for topic := range began {
		seen[topic] = true
	}
	of := slices.Clone(given)
	for _, tp := range given {
		if seen[tp.Topic] {
			continue
		}
		seen[tp.Topic] = true
		topic, err := p.log.TopicByID(tp.Topic)
		if err != nil {
			continue // it is gone
		}
		for n := range topic.Partitions {
			if other := (TopicPartition{tp.Topic, int32(n)}); !slices.Contains(given, other) {
				of = append(of, other)
			}
		}
	}
	return of
}

// unfilled lists the peer's partitions whose positions it does not know.
func (p *Peer) unfilled(part func(peerMember) []TopicPartition) (out []TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	me, _ := p.group.find(p.id)
	for _, tp := range part(me) {
		if p.held[tp] == nil {
			out = append(out, tp)
		}
	}
	return out
}

func (s peerMember) getOwn() []TopicPartition      { return s.own }
func (s peerMember) getRevoking() []TopicPartition { return s.revoking }
