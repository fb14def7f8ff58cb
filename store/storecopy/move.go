package storecopy

import (
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
	// View returns a shard on which a partition has a number of its own; nothing else of its partitions is seen. ShardName names the shard for people.
	View(shard int, p, on eventlog.Partition) eventlog.Store
	ShardName(shard int) string
	// Placement returns where a partition is. Place changes that; ErrStale: somebody else did. When Place returns nil, no process commits by the earlier placement.
	Placement(ctx context.Context, p eventlog.Partition) (eventlog.Placement, error)
	Place(ctx context.Context, p eventlog.Partition, from, to eventlog.Placement) (eventlog.Placement, error)
	// KeyRules are the set's rules of where keys live.
	KeyRules() []eventlog.KeyRule
	// GuardKey is the key, on the two shards of a move, that says who makes it.
	GuardKey(p eventlog.Partition) string
}

// Errors that a caller of a move can act on.
var (
	// ErrThere: the partition is on the shard already, and nothing is left of it elsewhere. Nothing was changed.
	ErrThere = errors.New("the partition is on that shard")
	// ErrMovesElsewhere: a move of the partition to another shard is not complete. Nothing was changed.
	ErrMovesElsewhere = errors.New("the partition moves to another shard")
	// ErrNotMoving: there is no move that could be abandoned. Nothing was changed.
	ErrNotMoving = errors.New("the partition does not move")
	// ErrTooOften: the partition cannot move any more. Nothing was changed.
	ErrTooOften = errors.New("the partition was moved too often")
	// ErrMoveTaken: another process has begun to move the partition, or has abandoned the move.
	ErrMoveTaken = errors.New("another process moves this partition now")
	// ErrMoved: the move is complete, except that the old shard may still have the partition. It cannot be abandoned.
	ErrMoved = errors.New("the partition is moved")
)

// Move moves a partition to another shard while it is in use. Its methods may not be called concurrently.
//
//	BeginMove ─► Copy ─► Switch: close ─► copy the rest, compare ─► place it on the new shard ─► forget the old one
//
// The partition keeps its number, and all that is on its shard with it: records with their offsets and bytes, and the state of idempotent producers. Compaction begins
// anew on the new shard, as in a copy of a store.
//
// If the process ends at any step, the same move can be begun again, or be abandoned until the partition is placed. Of two processes that move a partition, only the one that began last goes on: it
// has raised the placement and the guards on both shards, which every commit of a move checks.
type Move struct {
	copy    *Copy
	set     Set
	p       eventlog.Partition
	at      eventlog.Placement
	source  eventlog.Version // of the guard on the source
	closing time.Time
}

// reopenPatience bounds how long a move that failed tries to open its partition again.
const reopenPatience = 10 * time.Second

// BeginMove begins to move a partition to a shard, or continues a move that was interrupted. report is called after each step; nil: nobody asks.
func BeginMove(ctx context.Context, set Set, p eventlog.Partition, to int, report func(Progress)) (*Move, error) {
	if report == nil {
		report = func(Progress) {}
	}
	if to < 0 || to >= set.Shards() {
		return nil, &eventlog.InvalidError{What: "shard", Value: fmt.Sprint(to), Why: fmt.Sprintf("the set has the shards 0 to %d", set.Shards()-1)}
	}
	at, err := set.Placement(ctx, p)
	if err != nil {
		return nil, err
	}
	switch {
	case at.Move == eventlog.MoveLeft && at.Shard != to:
		return nil, fmt.Errorf("%w: shard %d may still have it: move it to shard %d once more, which completes that", ErrMoved, at.Other, at.Shard)
	case at.Move != "" && at.Move != eventlog.MoveLeft && at.Other != to:
		return nil, fmt.Errorf("%w: from shard %d to shard %d; complete or abandon that first", ErrMovesElsewhere, at.Shard, at.Other)
	case at.Move == "" && at.Shard == to:
		return nil, ErrThere
	case at.Move == "":
		if at.Moves == eventlog.MovesMax {
			return nil, fmt.Errorf("%w: partition %d has begun to move %d times", ErrTooOften, p, at.Moves)
		}
		at.Moves++
		at.Move, at.Other, at.OtherID = eventlog.MoveCopying, to, p.Moved(at.Moves)
		if held, _, err := set.View(at.Shard, p, at.ID).Moved(ctx, eventlog.Mark{}); err != nil {
			return nil, fmt.Errorf("read %s: %w", set.ShardName(at.Shard), err)
		} else if len(held) == 0 {
			return nil, fmt.Errorf("partition %d: %w", p, eventlog.ErrNoPartition)
		}
	}
	return take(ctx, set, p, at, report)
}

// AbandonMove ends the move of a partition that is not placed on its new shard. It is open where it was.
func AbandonMove(ctx context.Context, set Set, p eventlog.Partition) error {
	at, err := set.Placement(ctx, p)
	switch {
	case err != nil:
		return err
	case at.Move == "":
		return ErrNotMoving
	case at.Move == eventlog.MoveLeft:
		return fmt.Errorf("%w: it is on shard %d", ErrMoved, at.Shard)
	}
	m, err := take(ctx, set, p, at, func(Progress) {})
	if err != nil {
		return err
	}
	return m.abandon(ctx)
}

// take makes this process the one that moves a partition. at has the version of the present placement.
func take(ctx context.Context, set Set, p eventlog.Partition, at eventlog.Placement, report func(Progress)) (*Move, error) {
	from, fromID, to, toID := at.Shard, at.ID, at.Other, at.OtherID
	if at.Move == eventlog.MoveLeft {
		from, fromID, to, toID = to, toID, from, fromID
	}
	m := &Move{set: set, p: p, copy: &Copy{
		from: set.View(from, p, fromID), to: set.View(to, p, toID), fromName: set.ShardName(from), toName: set.ShardName(to),
		id: rand.Text(), scope: onePartition(set, p), compared: map[eventlog.Partition]eventlog.Offset{}, report: report,
	}}
	next := at
	next.By = m.copy.id
	var err error
	if m.at, err = set.Place(ctx, p, at, next); err != nil {
		return nil, taken(err)
	}
	if m.source, err = raise(ctx, m.copy.from, m.copy.scope.guard); err != nil {
		return nil, fmt.Errorf("%s: %w", m.copy.fromName, err)
	}
	if m.copy.version, err = raise(ctx, m.copy.to, m.copy.scope.guard); err != nil {
		return nil, fmt.Errorf("%s: %w", m.copy.toName, err)
	}
	// Somebody else may have moved the partition to its end before the guards were raised. Whoever takes it over from now on raises them before its first commit.
	if now, err := set.Placement(ctx, p); err != nil {
		return nil, err
	} else if now.Version != m.at.Version {
		_ = erased(ctx, m.copy.from, m.copy.scope.guard, m.source) // what is left of a guard does no harm
		_ = erased(ctx, m.copy.to, m.copy.scope.guard, m.copy.version)
		return nil, ErrMoveTaken
	}
	return m, nil
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

// Run makes the whole move of a partition that is in use. It returns how long changes were refused.
func (m *Move) Run(ctx context.Context) (closed time.Duration, err error) {
	if m.at.Move == eventlog.MoveCopying { // else it is closed already, or moved
		err = m.Copy(ctx)
	}
	if err == nil {
		closed, err = m.Switch(ctx)
	}
	if errors.Is(err, eventlog.ErrNoPartition) { // its topic was deleted: nothing is left to move
		return closed, errors.Join(err, m.abandon(ctx))
	}
	return closed, err
}

// Copy copies and compares until little is left.
func (m *Move) Copy(ctx context.Context) error {
	const most, smallBytes, smallKeys = 8, 4 << 20, 1000 // passes; what the last one copied
	for range most {
		pass, err := m.copy.Pass(ctx)
		if err != nil {
			return err
		}
		if pass.Bytes < smallBytes && pass.Keys < smallKeys {
			break
		}
	}
	if err := m.copy.Compare(ctx); err != nil {
		return err
	}
	_, err := m.copy.Pass(ctx) // what came meanwhile
	return err
}

// Switch closes the partition, copies and compares what is new, and places the partition on its new shard. Then it deletes what the old shard has. Until the partition is
// placed, changes are refused with ErrUnavailable. If that fails, it is open again, where it was; if this fails too, or the process ends, begin the move again, or abandon it.
func (m *Move) Switch(ctx context.Context) (closed time.Duration, err error) {
	if m.at.Move != eventlog.MoveLeft {
		if err := m.close(ctx); err != nil {
			return 0, err
		}
		if err := m.place(ctx); err != nil {
			return time.Since(m.closing), err
		}
		closed = time.Since(m.closing)
	}
	if err := m.forget(ctx); err != nil {
		return closed, fmt.Errorf("the partition is moved, but %s still has it: %w", m.copy.fromName, err)
	}
	return closed, nil
}

// close refuses changes of the partition, in every process.
func (m *Move) close(ctx context.Context) (err error) {
	next := m.at
	next.Move = eventlog.MoveClosed
	m.closing = time.Now()
	if m.at, err = m.set.Place(ctx, m.p, m.at, next); err != nil { // also if it was closed: perhaps not every shard knows
		return m.reopen(ctx, next, taken(err))
	}
	return nil
}

// place copies the rest of the closed partition, and makes it known on its new shard.
func (m *Move) place(ctx context.Context) (err error) {
	if err := m.rest(ctx); err != nil {
		return m.reopen(ctx, m.at, err)
	}
	next := m.at
	next.Shard, next.ID, next.Other, next.OtherID, next.Move = m.at.Other, m.at.OtherID, m.at.Shard, m.at.ID, eventlog.MoveLeft
	if m.at, err = m.set.Place(ctx, m.p, m.at, next); err != nil {
		return m.reopen(ctx, m.at, taken(err))
	}
	return nil
}

// rest makes the copy of a closed partition complete.
func (m *Move) rest(ctx context.Context) error {
	if _, err := m.copy.Pass(ctx); err != nil {
		return err
	}
	if err := m.copy.Compare(ctx); err != nil {
		return err
	}
	return m.copy.again(ctx, func() error {
		if err := m.copy.equal(ctx); err != nil {
			return err
		}
		return m.compactAnew(ctx)
	})
}

// compactAnew makes compaction begin anew: the copy may have batches as they were before compaction. The key gets a version that it never had, so that who keeps copies of
// batches reads them again.
func (m *Move) compactAnew(ctx context.Context) error {
	name := eventlog.ReplacedKey(m.p)
	from, err := key(ctx, m.copy.from, name)
	if err != nil || from.Version == 0 {
		return err
	}
	to, err := key(ctx, m.copy.to, name)
	if err != nil {
		return err
	}
	return m.copy.commit(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: name, Version: to.Version}},
		Puts:   []eventlog.Put{{Key: name, Version: max(from.Version, to.Version).Next(), Value: []byte(`{}`)}},
	})
}

// reopen opens the partition where it was, after a failure. It returns the failure.
func (m *Move) reopen(ctx context.Context, closed eventlog.Placement, failure error) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenPatience)
	defer cancel()
	now, err := m.set.Placement(within, m.p)
	if err == nil && now.By == m.copy.id && now.Move == eventlog.MoveClosed {
		next := now
		next.Move = eventlog.MoveCopying
		m.at, err = m.set.Place(within, m.p, now, next)
	}
	if err != nil {
		return errors.Join(failure, fmt.Errorf("the partition may be closed: repeat the move, or abandon it: %w", err))
	}
	return failure
}

// forget deletes what the old shard has of the partition.
func (m *Move) forget(ctx context.Context) error {
	if err := m.erase(ctx, m.copy.from, m.source); err != nil {
		return err
	}
	if err := erased(ctx, m.copy.to, m.copy.scope.guard, m.copy.version); err != nil {
		return err
	}
	var err error
	m.at, err = m.set.Place(ctx, m.p, m.at, eventlog.Placement{Shard: m.at.Shard, ID: m.at.ID, Moves: m.at.Moves})
	return taken(err)
}

// abandon opens the partition where it is, and deletes the copy.
func (m *Move) abandon(ctx context.Context) (err error) {
	// The copy may be in use if this process does not know how its last change of the placement ended.
	if now, err := m.set.Placement(ctx, m.p); err != nil {
		return err
	} else if now.Version != m.at.Version || now.Move == eventlog.MoveLeft {
		return ErrMoveTaken
	}
	if next := m.at; m.at.Move == eventlog.MoveClosed {
		next.Move = eventlog.MoveCopying
		if m.at, err = m.set.Place(ctx, m.p, m.at, next); err != nil {
			return taken(err)
		}
	}
	if err := m.erase(ctx, m.copy.to, m.copy.version); err != nil {
		return err
	}
	if err := erased(ctx, m.copy.from, m.copy.scope.guard, m.source); err != nil {
		return err
	}
	m.at, err = m.set.Place(ctx, m.p, m.at, eventlog.Placement{Shard: m.at.Shard, ID: m.at.ID, Moves: m.at.Moves})
	return taken(err)
}

// erase deletes the partition, its keys and the guard on a shard, if the guard is at a version.
func (m *Move) erase(ctx context.Context, store eventlog.Store, guard eventlog.Version) error {
	return again(func() error {
		kv, err := entered(ctx, store, m.copy.scope.guard)
		if err != nil {
			return err
		}
		if kv.Version == 0 {
			return nil // done: the answer was lost
		}
		check := []eventlog.Check{{Key: m.copy.scope.guard, Version: guard}}
		puts := []eventlog.Put{{Key: eventlog.ReplacedKey(m.p)}}
		for _, prefix := range m.copy.scope.prefixes {
			all := pages{store: store, name: "shard", prefix: prefix, has: m.copy.scope.key}
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
		return taken(commit(ctx, store, eventlog.Entry{Checks: check, Puts: []eventlog.Put{{Key: m.copy.scope.guard}}, Forgets: []eventlog.Partition{m.p}, UsesReserve: true}))
	})
}

// erased deletes a guard that is at a version.
func erased(ctx context.Context, store eventlog.Store, guard string, version eventlog.Version) error {
	return again(func() error {
		kv, err := entered(ctx, store, guard)
		if err != nil || kv.Version != version {
			return err
		}
		return taken(commit(ctx, store, eventlog.Entry{Checks: []eventlog.Check{{Key: guard, Version: version}}, Puts: []eventlog.Put{{Key: guard}}, UsesReserve: true}))
	})
}

// again calls do, and repeats it after ErrRewound or ErrUnsure: tries calls in all.
func again(do func() error) (err error) {
	for range tries {
		if err = do(); !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrRewound) {
			break
		}
	}
	return err
}
