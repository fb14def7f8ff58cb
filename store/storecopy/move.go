package storecopy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Set is a store made of shards, as a move needs it: store/shard.Set. No log may use the value.
type Set interface {
	eventlog.Store
	eventlog.Sharded
	// View returns a shard of which all keys are seen, and only the partition p, which has the
	// number on there. ShardName names a shard for people.
	View(shard int, p, on eventlog.Partition) eventlog.Store
	ShardName(shard int) string
	// Placements returns where partitions are. Place changes that for several, with at most one
	// leader epoch: a change that somebody else made impossible is left out, and its Version is 0.
	// When Place returns without an error, no process commits by the earlier placements.
	Placements(ctx context.Context) (eventlog.Placements, error)
	Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error)
	// KeyRules are the set's rules of where keys live.
	KeyRules() []eventlog.KeyRule
	// GuardKey is the key, on the two shards of a move, that says who makes it.
	GuardKey(p eventlog.Partition) string
}

// Errors that a caller of a move can act on.
var (
	// ErrThere: the partition is on the shard already, and nothing is left of it elsewhere. Nothing
	// was changed.
	ErrThere = errors.New("the partition is on that shard")
	// ErrMovesElsewhere: a move of the partition to another shard is not complete. Nothing was
	// changed.
	ErrMovesElsewhere = errors.New("the partition moves to another shard")
	// ErrNotMoving: there is no move that could be abandoned. Nothing was changed.
	ErrNotMoving = errors.New("the partition does not move")
	// ErrTooOften: the partition cannot move any more. Nothing was changed.
	ErrTooOften = errors.New("the partition was moved too often")
	// ErrMoveTaken: another process has begun to move the partition, or has abandoned the move.
	ErrMoveTaken = errors.New("another process moves this partition now")
	// ErrMoved: the move is complete, except that the old shard may still have the partition. It
	// cannot be abandoned.
	ErrMoved = errors.New("the partition is moved")
	// ErrLate: the copy of the closed partition was not complete in time. The partition is open
	// where it was.
	ErrLate = errors.New("the rest of the partition could not be copied in the time that it may be closed")
)

// PartitionError is the error of one of several partitions.
type PartitionError struct {
	Partition eventlog.Partition
	Err       error
}

func (e *PartitionError) Error() string { return fmt.Sprintf("partition %d: %v", e.Partition, e.Err) }
func (e *PartitionError) Unwrap() error { return e.Err }

// MoveOptions are the settings of Moves.
type MoveOptions struct {
	// Report is called after each step, with what was copied and compared of all partitions since
	// BeginMoves. nil: nobody asks.
	Report func(Progress)
	// Refused says which of some partitions must not move, and why. It is called while they are
	// closed, so it also knows what happened since BeginMoves: whoever needs to have them where
	// they are has said so before, or finds them closed. Those that must not move are opened again.
	// nil: all may move.
	Refused func(context.Context, []eventlog.Partition) (map[eventlog.Partition]error, error)
	// ClosedGoal is how long the partitions of a group are closed, if the last pass of each takes
	// as long as the one before. Default 2 s.
	ClosedGoal time.Duration
	// ClosedMost bounds how long partitions are closed while their last records are copied and
	// compared. Default 10 s.
	ClosedMost time.Duration
}

// Moved says what became of a partition that was to move.
type Moved struct {
	Partition eventlog.Partition
	Closed    time.Duration // how long changes were refused
	Err       error         // nil: it is moved, or the move is abandoned
}

// Moves moves partitions to a shard while they are in use. Its methods may not be called
// concurrently.
//
//	BeginMoves ─► Run: copy all ─► for each group: copy what is new ─► close ─► copy the rest, compare ─► place on the new shard ─► forget what is on the old one
//
// A partition keeps its number, and all that is on its shard with it: records with their offsets
// and bytes, and the state of idempotent producers. Compaction begins anew on the new shard, as in
// a copy of a store.
//
// The partitions of a group are closed with one leader epoch, and placed with another. A group has
// those of which little is left to copy, and no more than can be copied in ClosedGoal. With the
// epoch that places them, those whose copy failed or is not complete after ClosedMost are opened
// again, where they were.
//
// If the process ends at any step, the same moves can be begun again. Until the partitions are
// placed, they can also be abandoned. Of two processes that move a partition, only the one that
// began last goes on: it has raised the placement and the guards on both shards, which every commit
// of a move checks.
type Moves struct {
	set  Set
	id   string
	opts MoveOptions
	done Progress
	all  []*move // in the order in which the caller gave them
}

// move is the move of one partition.
type move struct {
	copy   *Copy
	p      eventlog.Partition
	at     eventlog.Placement
	begins eventlog.Placement // with which its move begins or goes on
	source eventlog.Version   // the version of the guard on the source

	took     time.Duration // by the last pass, with its comparison
	small    bool          // the last pass copied little
	late     int           // how often its copy was not complete in time
	complete bool          // the copy is complete, and the partition is closed
	failure  error         // why the copy is not complete
	closed   time.Duration // how long changes were refused
	err      error         // nothing more is done for this partition
}

const (
	// closedGoal and closedMost are the defaults of MoveOptions. The move of a partition fails when
	// its copy is not complete within ClosedMost for the lateMost-th time.
	closedGoal, closedMost, lateMost = 2 * time.Second, 10 * time.Second, 3
	// groupMost bounds the partitions of a group, and of one change of placements.
	groupMost = 256
	// passesMost bounds the passes over a partition before it is closed. One that copies less than
	// smallBytes and smallKeys is the last.
	passesMost, smallBytes, smallKeys = 8, 4 << 20, 1000
	// placePatience bounds how long placing a group takes, and how long a move that failed tries to
	// open its partitions again.
	placePatience = 10 * time.Second
)

// BeginMoves begins to move partitions to a shard, or continues moves that were interrupted. Those
// that are there already stay as they are; if all are: ErrThere. A *PartitionError says that one of
// them cannot move. Nothing was changed then.
func BeginMoves(ctx context.Context, set Set, partitions []eventlog.Partition, to int, opts MoveOptions) (*Moves, error) {
	if to < 0 || to >= set.Shards() {
		return nil, &eventlog.InvalidError{What: "shard", Value: fmt.Sprint(to), Why: fmt.Sprintf("the set has the shards 0 to %d", set.Shards()-1)}
	}
	placed, err := set.Placements(ctx)
	if err != nil {
		return nil, err
	}
	bounds, _, err := set.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return nil, err
	}
	held := make(map[eventlog.Partition]bool, len(bounds))
	for _, b := range bounds {
		held[b.Partition] = true
	}
	m := newMoves(set, opts)
	there := 0
	for _, p := range partitions {
		one := &move{p: p, at: placed.Of(p)}
		one.begins, one.err = planned(p, one.at, to, held[p] || set.Unheard(p))
		switch {
		case errors.Is(one.err, ErrThere):
			there++
		case one.err != nil:
			return nil, &PartitionError{p, one.err}
		}
		m.all = append(m.all, one)
	}
	if there == len(partitions) {
		return nil, ErrThere
	}
	return m, m.take(ctx)
}

// planned returns the placement with which the move of a partition that is placed at at begins or
// goes on.
func planned(p eventlog.Partition, at eventlog.Placement, to int, held bool) (eventlog.Placement, error) {
	switch {
	case at.Move == eventlog.MoveLeft && at.Shard != to:
		return at, fmt.Errorf("%w: shard %d may still have it: move it to shard %d once more, which completes that", ErrMoved, at.Other, at.Shard)
	case at.Move != "" && at.Move != eventlog.MoveLeft && at.Other != to:
		return at, fmt.Errorf("%w: from shard %d to shard %d; complete or abandon that first", ErrMovesElsewhere, at.Shard, at.Other)
	case at.Move == "" && at.Shard == to:
		return at, ErrThere
	case at.Move != "":
		return at, nil
	case at.Moves == eventlog.MovesMax:
		return at, fmt.Errorf("%w: it has begun to move %d times", ErrTooOften, at.Moves)
	case !held:
		return at, eventlog.ErrNoPartition
	}
	at.Moves++
	at.Move, at.Other, at.OtherID = eventlog.MoveCopying, to, p.Moved(at.Moves)
	return at, nil
}

// AbandonMoves ends the moves of partitions that are not placed on their new shards: they are open
// where they were. If none of them moves: ErrNotMoving. deleted says of which partitions the topic
// was deleted (nil: of none): what a move has left of them is deleted, however far it had come.
func AbandonMoves(ctx context.Context, set Set, partitions []eventlog.Partition, deleted func(eventlog.Partition) bool) ([]Moved, error) {
	placed, err := set.Placements(ctx)
	if err != nil {
		return nil, err
	}
	m := newMoves(set, MoveOptions{})
	still := 0
	for _, p := range partitions {
		one := &move{p: p, at: placed.Of(p), begins: placed.Of(p)}
		switch {
		case one.at.Move == "":
			one.err = ErrNotMoving
			still++
		case one.at.Move == eventlog.MoveLeft && (deleted == nil || !deleted(p)):
			one.err = fmt.Errorf("%w: it is on shard %d, and shard %d may still have it: move it to shard %d once more, which deletes that", ErrMoved, one.at.Shard, one.at.Other, one.at.Shard)
		}
		m.all = append(m.all, one)
	}
	if still == len(partitions) {
		return nil, ErrNotMoving
	}
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	m.forget(ctx, m.those(eventlog.MoveLeft))
	m.abandon(ctx, m.those(eventlog.MoveCopying))
	return m.results(), nil
}

func newMoves(set Set, opts MoveOptions) *Moves {
	opts.ClosedGoal, opts.ClosedMost = cmp.Or(opts.ClosedGoal, closedGoal), cmp.Or(opts.ClosedMost, closedMost)
	return &Moves{set: set, id: rand.Text(), opts: opts}
}

// those returns the moves that have not failed and are in a state.
func (m *Moves) those(state eventlog.MoveState) []*move {
	return slices.DeleteFunc(live(m.all), func(one *move) bool { return one.at.Move != state })
}

// live returns the moves that have not failed.
func live(all []*move) (some []*move) {
	for _, one := range all {
		if one.err == nil {
			some = append(some, one)
		}
	}
	return some
}

func (m *Moves) results() (all []Moved) {
	for _, one := range m.all {
		all = append(all, Moved{one.p, one.closed, one.err})
	}
	return all
}

// take makes this process the one that moves the partitions. It opens those that are closed:
// otherwise they would stay closed until all partitions are copied and compared.
func (m *Moves) take(ctx context.Context) error {
	all := live(m.all)
	for _, one := range all {
		one.copy = m.copyOf(one)
	}
	for some := range slices.Chunk(all, groupMost) {
		err := m.place(ctx, some, func(one *move) eventlog.Placement {
			next := one.begins
			next.By = m.id
			if next.Move == eventlog.MoveClosed {
				next.Move = eventlog.MoveCopying
			}
			return next
		})
		if err != nil {
			return err
		}
	}
	for _, one := range live(all) {
		if one.source, one.err = raise(ctx, one.copy.from, one.copy.scope.guard); one.err != nil {
			one.err = fmt.Errorf("%s: %w", one.copy.fromName, one.err)
		} else if one.copy.version, one.err = raise(ctx, one.copy.to, one.copy.scope.guard); one.err != nil {
			one.err = fmt.Errorf("%s: %w", one.copy.toName, one.err)
		}
	}
	// Somebody else may have completed the move of a partition before its guards were raised.
	// Whoever takes the move over from now on raises them before its first commit.
	now, err := m.set.Placements(ctx)
	if err != nil {
		return err
	}
	for _, one := range live(all) {
		if now.Of(one.p).Version != one.at.Version {
			_ = erased(ctx, one.copy.from, one.copy.scope.guard, one.source) // what is left of a guard does no harm
			_ = erased(ctx, one.copy.to, one.copy.scope.guard, one.copy.version)
			one.err = ErrMoveTaken
		}
	}
	return nil
}

// copyOf returns the copy of a partition from its old shard to its new one.
func (m *Moves) copyOf(one *move) *Copy {
	from, fromID, to, toID := one.begins.Shard, one.begins.ID, one.begins.Other, one.begins.OtherID
	if one.begins.Move == eventlog.MoveLeft {
		from, fromID, to, toID = to, toID, from, fromID
	}
	var before Progress
	return &Copy{
		from: m.set.View(from, one.p, fromID), to: m.set.View(to, one.p, toID), fromName: m.set.ShardName(from), toName: m.set.ShardName(to),
		id: m.id, scope: onePartition(m.set, one.p), compared: map[eventlog.Partition]eventlog.Offset{},
		report: func(p Progress) {
			m.done = m.done.plus(p, before)
			before = p
			if m.opts.Report != nil {
				m.opts.Report(m.done)
			}
		},
	}
}

// plus adds to p what was done between before and now.
func (p Progress) plus(now, before Progress) Progress {
	return Progress{p.Records + now.Records - before.Records, p.Bytes + now.Bytes - before.Bytes, p.Keys + now.Keys - before.Keys, p.Compared + now.Compared - before.Compared}
}

// place changes the placements of some partitions together. One that another process moves now gets
// ErrMoveTaken.
func (m *Moves) place(ctx context.Context, some []*move, to func(*move) eventlog.Placement) error {
	if len(some) == 0 {
		return nil
	}
	changes := make([]eventlog.Placing, len(some))
	for i, one := range some {
		changes[i] = eventlog.Placing{Partition: one.p, From: one.at, To: to(one)}
	}
	made, err := m.set.Place(ctx, changes)
	if err != nil {
		return err
	}
	for i, one := range some {
		if made[i].Version == 0 {
			one.err = ErrMoveTaken
		} else {
			one.at = made[i]
		}
	}
	return nil
}

// onePartition is the scope of a move.
func onePartition(set Set, p eventlog.Partition) scope {
	s := scope{guard: set.GuardKey(p), only: p}
	for _, rule := range set.KeyRules() {
		if rule.By == eventlog.ByPartition && rule.Prefix != eventlog.CompactPrefix {
			s.prefixes = append(s.prefixes, rule.Prefix)
		}
	}
	suffix := fmt.Sprintf("/%d", p)
	s.key = func(key string) bool { return strings.HasSuffix(key, suffix) }
	return s
}

func taken(err error) error {
	if errors.Is(err, eventlog.ErrStale) {
		return fmt.Errorf("%w: %w", ErrMoveTaken, err)
	}
	return err
}

// raise raises the version of a guard: commits of whoever raised it before are refused from now on.
func raise(ctx context.Context, store eventlog.Store, guard string) (eventlog.Version, error) {
	var next eventlog.Version
	err := again(func() error {
		kv, err := entered(ctx, store, guard)
		if err != nil {
			return err
		}
		next = kv.Version.Next()
		return taken(commit(ctx, store, eventlog.Entry{
			Checks: []eventlog.Check{{Key: guard, Version: kv.Version}}, Puts: []eventlog.Put{{Key: guard, Version: next, Value: []byte(`{}`)}}, UsesReserve: true,
		}))
	})
	return next, err
}

// Run makes the moves, and says what became of each partition, in the order in which they were
// given to BeginMoves.
func (m *Moves) Run(ctx context.Context) []Moved {
	m.forget(ctx, m.those(eventlog.MoveLeft))
	for _, one := range m.those(eventlog.MoveCopying) {
		one.err = one.catchUp(ctx)
	}
	for {
		group := m.fitting(m.those(eventlog.MoveCopying))
		if len(group) == 0 {
			break
		}
		for _, one := range group { // what came while others were copied and switched
			one.err = one.catchUp(ctx)
		}
		m.switchOver(ctx, m.fitting(live(group)))
	}
	var deleted []*move
	for _, one := range m.all {
		if errors.Is(one.err, eventlog.ErrNoPartition) && one.at.Move == eventlog.MoveCopying { // its topic was deleted: nothing is left to move
			deleted = append(deleted, one)
		}
	}
	m.abandon(ctx, deleted)
	return m.results()
}

// catchUp copies and compares until little is left.
func (one *move) catchUp(ctx context.Context) error {
	for range passesMost {
		began := time.Now()
		pass, err := one.copy.Pass(ctx)
		if err == nil {
			err = one.copy.Compare(ctx)
		}
		if err != nil {
			return err
		}
		one.took, one.small = time.Since(began), pass.Bytes < smallBytes && pass.Keys < smallKeys
		if one.small {
			break
		}
	}
	return nil
}

// fitting returns the partitions that are closed together next: those that can be copied in
// ClosedGoal, at least one. A partition of which much is left, or that was late, is closed alone.
func (m *Moves) fitting(all []*move) (group []*move) {
	var sum time.Duration
	for _, one := range all {
		cost := one.took
		if !one.small || one.late > 0 {
			cost = m.opts.ClosedGoal
		}
		if len(group) > 0 && (sum+cost > m.opts.ClosedGoal || len(group) == groupMost) {
			continue
		}
		group, sum = append(group, one), sum+cost
	}
	return group
}

// switchOver closes the partitions of a group, copies and compares what is new, and places them on
// their new shard. Then it deletes what the old shards have. Until they are placed, changes are
// refused with ErrUnavailable. A partition whose copy fails is opened again, where it was. If
// opening it fails, too, or the process ends, begin its move again, or abandon it.
func (m *Moves) switchOver(ctx context.Context, group []*move) {
	if len(group) == 0 {
		return
	}
	began := time.Now()
	err := m.place(ctx, group, func(one *move) eventlog.Placement {
		next := one.at
		next.Move = eventlog.MoveClosed
		return next
	})
	if err != nil { // the partitions may be closed all the same, and perhaps not every shard knows
		m.reopen(ctx, group, err)
		return
	}
	group = live(group)
	m.complete(ctx, group)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), placePatience)
	defer cancel()
	err = m.place(within, group, func(one *move) eventlog.Placement {
		next := one.at
		if !one.complete {
			next.Move = eventlog.MoveCopying
			return next
		}
		next.Shard, next.ID, next.Other, next.OtherID, next.Move = one.at.Other, one.at.OtherID, one.at.Shard, one.at.ID, eventlog.MoveLeft
		return next
	})
	if err != nil {
		m.reopen(ctx, group, err)
	}
	var moved []*move
	for _, one := range group {
		one.closed = time.Since(began)
		if one.err == nil {
			one.err = one.failure
		}
		if one.err == nil && one.at.Move == eventlog.MoveLeft {
			moved = append(moved, one)
		}
	}
	m.forget(ctx, moved)
}

// refused asks which partitions must not move.
func (m *Moves) refused(ctx context.Context, group []*move) (refused map[eventlog.Partition]error, err error) {
	if m.opts.Refused == nil {
		return nil, nil
	}
	var some []eventlog.Partition
	for _, one := range group {
		some = append(some, one.p)
	}
	for range tries {
		if refused, err = m.opts.Refused(ctx, some); !errors.Is(err, eventlog.ErrRewound) {
			break
		}
		if _, _, err := m.set.Changes(ctx, eventlog.Mark{}); err != nil { // another process began an epoch
			return nil, err
		}
	}
	return refused, err
}

// complete completes the copies of closed partitions, as far as time allows.
func (m *Moves) complete(ctx context.Context, group []*move) {
	within, cancel := context.WithTimeout(ctx, m.opts.ClosedMost)
	defer cancel()
	refused, err := m.refused(within, group)
	for _, one := range group {
		one.complete, one.failure = false, err
		if why := refused[one.p]; why != nil {
			one.failure = why
		}
		if one.failure != nil {
			continue
		}
		if within.Err() != nil && ctx.Err() == nil {
			break // the others are closed again with a later group
		}
		err := one.rest(within)
		if one.complete = err == nil; one.complete {
			continue
		}
		if within.Err() == nil || ctx.Err() != nil {
			one.failure = err
		} else if one.late++; one.late == lateMost {
			one.failure = fmt.Errorf("%w (%v, tried %d times): repeat this when fewer records are written to it, or when the shards are faster: %w", ErrLate, m.opts.ClosedMost, lateMost, err)
		}
	}
}

// rest makes the copy of a closed partition complete.
func (one *move) rest(ctx context.Context) error {
	if _, err := one.copy.Pass(ctx); err != nil {
		return err
	}
	if err := one.copy.Compare(ctx); err != nil {
		return err
	}
	return one.copy.again(ctx, func() error {
		if err := one.copy.equal(ctx); err != nil {
			return err
		}
		return one.compactAnew(ctx)
	})
}

// compactAnew makes compaction begin anew: the copy may have batches as they were before
// compaction. The key gets a version that it never had, so that those who keep copies of batches
// read them again.
func (one *move) compactAnew(ctx context.Context) error {
	name := eventlog.ReplacedKey(one.p)
	from, err := key(ctx, one.copy.from, name)
	if err != nil || from.Version == 0 {
		return err
	}
	to, err := key(ctx, one.copy.to, name)
	if err != nil {
		return err
	}
	return one.copy.commit(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: name, Version: to.Version}},
		Puts:   []eventlog.Put{{Key: name, Version: max(from.Version, to.Version).Next(), Value: []byte(`{}`)}},
	})
}

// reopen opens partitions that may be closed, where they were, after a failure. A partition that
// was placed on its new shard nevertheless stays there, and gets no error.
func (m *Moves) reopen(ctx context.Context, group []*move, failure error) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), placePatience)
	defer cancel()
	now, err := m.set.Placements(within)
	if err == nil {
		var closed []*move
		for _, one := range live(group) {
			at := now.Of(one.p)
			if at.By != m.id {
				one.err = ErrMoveTaken
				continue
			}
			if one.at = at; at.Move == eventlog.MoveClosed {
				closed = append(closed, one)
			}
		}
		err = m.place(within, closed, func(one *move) eventlog.Placement {
			next := one.at
			next.Move = eventlog.MoveCopying
			return next
		})
	}
	if err != nil {
		failure = errors.Join(failure, fmt.Errorf("the partition may be closed: repeat the move, or abandon it: %w", err))
	}
	for _, one := range live(group) {
		if err != nil || one.at.Move != eventlog.MoveLeft {
			one.err = failure
		}
	}
}

// forget deletes what the old shards have of partitions that are placed on their new one.
func (m *Moves) forget(ctx context.Context, some []*move) {
	for _, one := range some {
		err := one.erase(ctx, one.copy.from, one.source)
		if err == nil {
			err = erased(ctx, one.copy.to, one.copy.scope.guard, one.copy.version)
		}
		one.err = one.stillHeld(err)
	}
	some = live(some)
	if err := m.end(ctx, some); err != nil {
		for _, one := range some {
			one.err = one.stillHeld(err)
		}
	}
}

func (one *move) stillHeld(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the partition is moved, but %s may still have it: %w", one.copy.fromName, err)
}

// end notes that partitions do not move any more.
func (m *Moves) end(ctx context.Context, some []*move) error {
	for few := range slices.Chunk(some, groupMost) {
		err := m.place(ctx, few, func(one *move) eventlog.Placement {
			return eventlog.Placement{Shard: one.at.Shard, ID: one.at.ID, Moves: one.at.Moves}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// abandon deletes the copies of partitions that are open where they were. What fails is added to
// the error of the partition.
func (m *Moves) abandon(ctx context.Context, some []*move) {
	if len(some) == 0 {
		return
	}
	now, err := m.set.Placements(ctx)
	var gone []*move
	for _, one := range some {
		why := err
		// The copy may be in use if this process does not know how its last change of the placement
		// ended.
		if at := now.Of(one.p); why == nil && (at.Version != one.at.Version || at.Move != eventlog.MoveCopying) {
			why = ErrMoveTaken
		}
		if why == nil {
			why = one.eraseCopy(ctx)
		}
		if why != nil {
			one.err = errors.Join(one.err, why)
		} else {
			gone = append(gone, one)
		}
	}
	if err := m.end(ctx, gone); err != nil {
		for _, one := range gone {
			one.err = errors.Join(one.err, err)
		}
	}
}

func (one *move) eraseCopy(ctx context.Context) error {
	if err := one.erase(ctx, one.copy.to, one.copy.version); err != nil {
		return err
	}
	return erased(ctx, one.copy.from, one.copy.scope.guard, one.source)
}

// erase deletes the partition, its keys and the guard on a shard, if the guard is at this version.
func (one *move) erase(ctx context.Context, store eventlog.Store, guard eventlog.Version) error {
	return again(func() error {
		kv, err := entered(ctx, store, one.copy.scope.guard)
		if err != nil {
			return err
		}
		if kv.Version == 0 {
			return nil // done: the answer was lost
		}
		check := []eventlog.Check{{Key: one.copy.scope.guard, Version: guard}}
		puts := []eventlog.Put{{Key: eventlog.ReplacedKey(one.p)}}
		for _, prefix := range one.copy.scope.prefixes {
			all := pages{store: store, name: "shard", prefix: prefix, has: one.copy.scope.key}
			for {
				kv, err := all.first(ctx)
				if err != nil {
					return err
				}
				if kv == nil {
					break
				}
				puts = append(puts, eventlog.Put{Key: kv.Key})
				all.pop()
			}
		}
		for some := range slices.Chunk(puts, keysMost) {
			if err := commit(ctx, store, eventlog.Entry{Checks: check, Puts: some, UsesReserve: true}); err != nil {
				return taken(err)
			}
		}
		return taken(commit(ctx, store, eventlog.Entry{Checks: check, Puts: []eventlog.Put{{Key: one.copy.scope.guard}}, Forgets: []eventlog.Partition{one.p}, UsesReserve: true}))
	})
}

// erased deletes a guard, if it is at this version.
func erased(ctx context.Context, store eventlog.Store, guard string, version eventlog.Version) error {
	return again(func() error {
		kv, err := entered(ctx, store, guard)
		if err != nil || kv.Version != version {
			return err
		}
		return taken(commit(ctx, store, eventlog.Entry{Checks: []eventlog.Check{{Key: guard, Version: version}}, Puts: []eventlog.Put{{Key: guard}}, UsesReserve: true}))
	})
}

// again calls do, and repeats it after ErrRewound or ErrUnsure, until it was called tries times.
func again(do func() error) (err error) {
	for range tries {
		if err = do(); !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrRewound) {
			break
		}
	}
	return err
}
