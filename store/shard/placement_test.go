package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/store/storetest"
)

// halted is a store whose next commit waits.
type halted struct {
	eventlog.Store
	reached, release chan struct{}
}

func (h *halted) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if h.reached != nil {
		close(h.reached)
		h.reached = nil
		<-h.release
	}
	return h.Store.Commit(ctx, flush)
}

// placement returns where a partition is.
func placement(t *testing.T, s *Set, p eventlog.Partition) eventlog.Placement {
	t.Helper()
	all, err := s.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all.Of(p)
}

// placeOn moves an empty partition, without a copy.
func placeOn(t *testing.T, s *Set, p eventlog.Partition, to int) {
	t.Helper()
	at := placement(t, s, p)
	next := eventlog.Placement{Shard: to, ID: p.Moved(at.Moves + 1), Moves: at.Moves + 1}
	do(t, s.View(to, p, next.ID), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}})
	if made, err := s.Place(t.Context(), []eventlog.Placing{{Partition: p, From: at, To: next}}); err != nil || made[0].Version == 0 {
		t.Fatal(made, err)
	}
}

// A commit that found its shard before the partition was moved never happens there, even if its
// process reads where the partition is, and enters the new epoch, in between.
func TestACommitByAnEarlierTableIsRefused(t *testing.T) {
	dir := t.TempDir()
	open := func(wrap func(int, eventlog.Store) eventlog.Store) *Set {
		var shards []Shard
		for i := range 2 {
			s, err := sqlite.Open(t.Context(), filepath.Join(dir, fmt.Sprint(i)), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			shards = append(shards, Shard{fmt.Sprint(i), wrap(i, s)})
		}
		return openSet(t, shards...)
	}
	slow := &halted{}
	late := open(func(i int, s eventlog.Store) eventlog.Store {
		if i > 0 {
			return s
		}
		slow.Store = s
		return slow
	})
	const p = eventlog.Partition(1)
	held(t, late)
	do(t, late, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}})
	reached := make(chan struct{})
	slow.reached, slow.release = reached, make(chan struct{})
	committed := make(chan error)
	go func() {
		out, err := late.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{records(p, 1)}}})
		if err == nil {
			err = out[0].Err
		}
		committed <- err
	}()
	<-reached
	other := open(func(_ int, s eventlog.Store) eventlog.Store { return s })
	placeOn(t, other, p, 1)
	entered := make(chan error, 1)
	go func() {
		_, _, err := late.Changes(t.Context(), eventlog.Mark{})
		entered <- err
	}()
	for len(entered) == 0 && late.routing.TryRLock() { // until it waits for the commit, or is done
		late.routing.RUnlock()
		runtime.Gosched()
	}
	close(slow.release)
	if err := <-committed; !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a commit by the earlier table: %v", err)
	}
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if at := late.ShardWith(p); at != 1 {
		t.Errorf("the process knows the partition on shard %d", at)
	}
	if out := do(t, late, eventlog.Entry{Batches: []eventlog.Batch{records(p, 2)}}); out[0].Err != nil || out[0].Base[0] != 0 {
		t.Errorf("the first records of the partition: %+v", out)
	}
}

// Where a partition was is forgotten when the partition is deleted, and nothing is left of it.
func TestThePlacementOfADeletedPartitionGoes(t *testing.T) {
	s := openMemory(t, memory.New(), memory.New())
	const gone, there, moves = eventlog.Partition(1), eventlog.Partition(2), eventlog.Partition(3)
	held(t, s)
	for _, p := range []eventlog.Partition{gone, there, moves} {
		do(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}})
		placeOn(t, s, p, 1)
	}
	for _, p := range []eventlog.Partition{there, moves} {
		do(t, s.View(0, p, p), eventlog.Entry{Forgets: []eventlog.Partition{p}})
	}
	at := placement(t, s, moves)
	next := at
	next.Move, next.Other, next.OtherID = eventlog.MoveCopying, 0, moves.Moved(at.Moves+1)
	if made, err := s.Place(t.Context(), []eventlog.Placing{{Partition: moves, From: at, To: next}}); err != nil || made[0].Version == 0 {
		t.Fatal(made, err)
	}
	do(t, s, eventlog.Entry{Forgets: []eventlog.Partition{gone}}, eventlog.Entry{Forgets: []eventlog.Partition{moves}})
	want := func(when string, want ...eventlog.Partition) {
		t.Helper()
		if err := s.Unplace(t.Context(), []eventlog.Partition{gone, there, moves, 99}); err != nil {
			t.Fatal(err)
		}
		all, err := s.Placements(t.Context())
		if got := slices.Sorted(maps.Keys(all)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s there are the placements of %v, want %v; %v", when, got, want, err)
		}
	}
	want("while shard 0 still has the partition", gone, there, moves)
	do(t, s.View(0, gone, gone), eventlog.Entry{Forgets: []eventlog.Partition{gone}})
	want("when nothing is left", there, moves)
	if got, want := held(t, s), "[{2 0 0 0}]"; got != want {
		t.Errorf("the set holds %s, want %s", got, want)
	}
}

// A partition that was moved keeps its number, for its bounds, records and keys; what other shards
// have of it is not seen.
func TestAMovedPartitionIsSeenOnce(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New()}
	s := openMemory(t, stores...)
	const p = eventlog.Partition(1)
	key := eventlog.Put{Key: fmt.Sprintf("compact/%d", p), Version: 1, Value: []byte("v")}
	held(t, s)
	do(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}}, eventlog.Entry{Batches: []eventlog.Batch{records(p, 3)}, Puts: []eventlog.Put{key}})
	placeOn(t, s, p, 1)
	do(t, s, eventlog.Entry{Batches: []eventlog.Batch{records(p, 2)}, Puts: []eventlog.Put{{Key: key.Key, Version: 9, Value: []byte("new")}}})
	if got, want := held(t, s), "[{1 0 2 10}]"; got != want {
		t.Errorf("the set holds %s, want %s", got, want)
	}
	if keys := keysOf(t, s, "compact/"); !slices.Equal(keys, []string{key.Key}) {
		t.Errorf("the keys of the partition: %v", keys)
	}
	if kv, err := eventlog.Get(t.Context(), s, key.Key); err != nil || kv.Version != 9 {
		t.Errorf("%+v, %v", kv, err)
	}
	if all := keysOf(t, s, "shard/"); len(all) > 0 {
		t.Errorf("the set shows its own keys: %v", all)
	}
	out := do(t, s, eventlog.Entry{Puts: []eventlog.Put{{Key: placedKey(p), Version: 1, Value: []byte("{}")}}})
	if out[0].Err == nil {
		t.Error("somebody else changed where a partition is")
	}
	got, err := s.Read(t.Context(), []eventlog.Span{{Partition: p, MaxBytes: 100}}, 100)
	if err != nil || got[0].Bounds.Partition != p || len(got[0].Batches) != 1 || got[0].Batches[0].Partition != p || got[0].Batches[0].Records != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if at, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: p, Bytes: 1}}); err != nil || at[0] != (eventlog.Found{}) {
		t.Errorf("%d, %v", at, err)
	}
	if err := storetest.Trim(t.Context(), s, p, 2); err != nil {
		t.Error(err)
	}
	if got, want := held(t, s), "[{1 2 2 0}]"; got != want {
		t.Errorf("after the trim the set holds %s, want %s", got, want)
	}
	if out := do(t, s, eventlog.Entry{Forgets: []eventlog.Partition{p}}); out[0].Err != nil {
		t.Error(out[0].Err)
	}
	if got := held(t, s); got != "[]" {
		t.Errorf("after its deletion the set holds %s", got)
	}
}

// While one shard does not answer, nothing is moved: a process might go on there by the earlier
// table.
func TestAPlacementNeedsEveryShard(t *testing.T) {
	last := &frail{Store: memory.New()}
	s := openSet(t, Shard{"0", memory.New()}, Shard{"1", memory.New()}, Shard{"2", last})
	const p = eventlog.Partition(1)
	held(t, s)
	do(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}})
	at := placement(t, s, p)
	last.down.Store(true)
	closed := at
	closed.Move, closed.Other = eventlog.MoveClosed, 1
	change := []eventlog.Placing{{Partition: p, From: at, To: closed}}
	if _, err := s.Place(t.Context(), change); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("without a shard: %v", err)
	}
	last.down.Store(false)
	if made, err := s.Place(t.Context(), change); err != nil || made[0].Version == 0 {
		t.Fatal(made, err)
	}
	for what, e := range map[string]eventlog.Entry{
		"records":    {Batches: []eventlog.Batch{records(p, 1)}},
		"a key":      {Puts: []eventlog.Put{{Key: fmt.Sprintf("compact/%d", p), Version: 1, Value: []byte("v")}}},
		"a deletion": {Forgets: []eventlog.Partition{p}},
	} {
		if out := do(t, s, e); !errors.Is(out[0].Err, eventlog.ErrUnavailable) {
			t.Errorf("%s of a closed partition: %v", what, out[0].Err)
		}
	}
	if err := storetest.Trim(t.Context(), s, p, 1); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a trim of a closed partition: %v", err)
	}
}

// epochs counts the leader epochs that a shard is told of.
type epochs struct {
	eventlog.Store
	begun int
}

func (e *epochs) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, entry := range flush {
		if slices.ContainsFunc(entry.Puts, func(put eventlog.Put) bool { return put.Key == eventlog.EpochKey }) {
			e.begun++
		}
	}
	return e.Store.Commit(ctx, flush)
}

// Several placements change with one epoch. One that somebody else has changed is left out, and
// does not hold up the others.
func TestPlacementsChangeTogether(t *testing.T) {
	told := &epochs{Store: memory.New()}
	s := openSet(t, Shard{"0", memory.New()}, Shard{"1", told})
	held(t, s)
	var changes []eventlog.Placing
	for p := range eventlog.Partition(5) {
		do(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p}}})
		at := placement(t, s, p)
		to := at
		to.Move, to.Other, to.OtherID, to.Moves = eventlog.MoveClosed, 1, p.Moved(1), 1
		changes = append(changes, eventlog.Placing{Partition: p, From: at, To: to})
	}
	other := changes[2]
	other.To.Move = eventlog.MoveCopying
	if _, err := s.Place(t.Context(), []eventlog.Placing{other}); err != nil {
		t.Fatal(err)
	}
	before := told.begun
	made, err := s.Place(t.Context(), changes)
	if err != nil {
		t.Fatal(err)
	}
	if n := told.begun - before; n != 1 {
		t.Errorf("%d epochs began", n)
	}
	for i, c := range changes {
		at := placement(t, s, c.Partition)
		if i == 2 {
			if made[i].Version != 0 || at.Move != eventlog.MoveCopying {
				t.Errorf("somebody else changed the placement to %+v, and this change was made: %+v", at, made[i])
			}
		} else if at != made[i] || at.Move != eventlog.MoveClosed {
			t.Errorf("partition %d is at %+v, and Place returned %+v", c.Partition, at, made[i])
		}
	}
}
