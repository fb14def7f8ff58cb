package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/storecopy"
)

// Moves of several partitions do not disturb each other, although each begins epochs for all.
func TestPartitionsMoveAtTheSameTime(t *testing.T) {
	url := shards(t, "sqlite", "sqlite")
	log, _ := run(t, url)
	topic := makeTopic(t, log, "orders", 6)
	for _, p := range topic.Partitions {
		publish(t, log, p, "a", "b")
	}
	var moves sync.WaitGroup
	for _, p := range topic.Partitions {
		s := set(t, url)
		moves.Go(func() {
			if err := moving(t.Context(), s, p, 1-p.Shard()); err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
		})
	}
	moves.Wait()
	for _, p := range topic.Partitions {
		if got := records(t, log, p); got != "0:a 1:b" {
			t.Errorf("partition %d holds %s", p, got)
		}
		onlyOn(t, url, p, 1-p.Shard())
	}
}

// counting is a set of a process that makes moves: it counts the leader epochs that these begin.
type counting struct {
	*shard.Set
	seen map[eventlog.Version]bool
}

func (c counting) Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error) {
	made, err := c.Set.Place(ctx, changes)
	c.look(ctx)
	return made, err
}

func (c counting) look(ctx context.Context) {
	if _, mark, err := c.Changes(ctx, eventlog.Mark{}); err == nil {
		c.seen[mark.Incarnation.Epoch] = true
	}
}

// on0 makes a topic, and returns its partitions on shard 0. Each has two records.
func on0(t *testing.T, log *eventlog.Log, partitions int) (some []eventlog.Partition) {
	t.Helper()
	for _, p := range makeTopic(t, log, "orders", partitions).Partitions {
		if p.Shard() == 0 {
			some = append(some, p)
			publish(t, log, p, "a", "b")
		}
	}
	return some
}

// publishable waits until a partition takes a record: every process has to notice first that it is
// open again.
func publishable(t *testing.T, log *eventlog.Log, p eventlog.Partition, value string) {
	t.Helper()
	for {
		_, err := log.Publish(t.Context(), p, batch.Record{Value: []byte(value), Timestamp: 1})
		if err == nil {
			return
		}
		if !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// However many partitions move together, two leader epochs begin; if they cannot be closed
// together, two for each group.
func TestPartitionsThatMoveTogetherBeginTwoEpochs(t *testing.T) {
	for name, kinds := range map[string][]string{"sqlite": {"sqlite", "sqlite"}, "postgres": {"postgres", "postgres"}} {
		t.Run(name, func(t *testing.T) {
			url := shards(t, kinds...)
			log, _ := run(t, url)
			some := on0(t, log, 12)
			for _, c := range []struct {
				to     int
				goal   time.Duration
				epochs int
			}{{1, time.Hour, 2}, {0, time.Nanosecond, 2 * len(some)}} {
				s := counting{set(t, url), map[eventlog.Version]bool{}}
				s.look(t.Context())
				m, err := storecopy.BeginMoves(t.Context(), s, some, c.to, storecopy.MoveOptions{ClosedGoal: c.goal, ClosedMost: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				for _, done := range m.Run(t.Context()) {
					if done.Err != nil || done.Closed <= 0 {
						t.Errorf("%+v", done)
					}
				}
				if n := len(s.seen) - 1; n != c.epochs {
					t.Errorf("%d partitions moved with %d epochs, want %d", len(some), n, c.epochs)
				}
				for _, p := range some {
					if got := records(t, log, p); got != "0:a 1:b" {
						t.Errorf("partition %d holds %s", p, got)
					}
				}
			}
			for _, p := range some {
				onlyOn(t, url, p, 0)
			}
		})
	}
}

// failing is a set of a process that makes moves: once a partition is closed, reads of it on its
// old shard fail, or do not end.
type failing struct {
	*shard.Set
	p      eventlog.Partition
	hangs  bool
	times  int // how often it fails
	armed  *bool
	states *[]eventlog.MoveState // of the partition
}

func (f failing) Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error) {
	made, err := f.Set.Place(ctx, changes)
	for i, at := range made {
		if changes[i].Partition == f.p {
			*f.states = append(*f.states, at.Move)
			closed := 0
			for _, s := range *f.states {
				if s == eventlog.MoveClosed {
					closed++
				}
			}
			*f.armed = at.Move == eventlog.MoveClosed && closed <= f.times
		}
	}
	return made, err
}

func (f failing) View(n int, p, on eventlog.Partition) eventlog.Store {
	if p != f.p || n != 0 {
		return f.Set.View(n, p, on)
	}
	return failingShard{f.Set.View(n, p, on), f}
}

type failingShard struct {
	eventlog.Store
	of failing
}

var errDamaged = errors.New("the disk cannot read this")

func (s failingShard) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	switch {
	case !*s.of.armed:
		return s.Store.Changes(ctx, since)
	case s.of.hangs:
		<-ctx.Done()
		return nil, since, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
	}
	return nil, since, errDamaged
}

// A partition whose copy cannot be completed is open again where it was, and the others are moved.
func TestAPartitionThatFailsDoesNotHoldUpOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		hangs  bool
		times  int
		want   error
		states string
	}{
		{"fails", false, 9, errDamaged, "[copying closed copying]"},
		{"is late once", true, 1, nil, "[copying closed copying closed left ]"},
		{"is always late", true, 9, storecopy.ErrLate, "[copying closed copying closed copying closed copying]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := shards(t, "sqlite", "sqlite")
			log, _ := run(t, url)
			some := on0(t, log, 6)
			var states []eventlog.MoveState
			most := time.Hour
			if c.hangs {
				most = 200 * time.Millisecond
			}
			m, err := storecopy.BeginMoves(t.Context(), failing{set(t, url), some[1], c.hangs, c.times, new(bool), &states}, some, 1, storecopy.MoveOptions{ClosedGoal: time.Hour, ClosedMost: most})
			if err != nil {
				t.Fatal(err)
			}
			done := m.Run(t.Context())
			if got := fmt.Sprint(states); got != c.states {
				t.Errorf("the partition was %s, want %s", got, c.states)
			}
			s := set(t, url)
			for i, p := range some {
				shard, want := 1, error(nil)
				if i == 1 && c.want != nil {
					shard, want = 0, c.want
				}
				if at := placement(t, s, p); !errors.Is(done[i].Err, want) || done[i].Partition != p || at.Shard != shard {
					t.Errorf("partition %d is at %+v: %+v, want %v", p, at, done[i], want)
				}
				publishable(t, log, p, "c")
			}
			if c.want != nil {
				move(t, url, some[1], 1)
			}
			for _, p := range some {
				onlyOn(t, url, p, 1)
				if got := records(t, log, p); got != "0:a 1:b 2:c" {
					t.Errorf("partition %d holds %s", p, got)
				}
			}
		})
	}
}

// Of several partitions, one is moved by another process: that does not hold up the others.
func TestAPartitionThatWasTakenOverDoesNotHoldUpOthers(t *testing.T) {
	url := shards(t, "sqlite", "sqlite")
	log, _ := run(t, url)
	some := on0(t, log, 6)
	taken := false
	m, err := storecopy.BeginMoves(t.Context(), set(t, url), some, 1, storecopy.MoveOptions{Report: func(storecopy.Progress) {
		if !taken {
			taken = true
			move(t, url, some[2], 1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, done := range m.Run(t.Context()) {
		if i == 2 && !errors.Is(done.Err, storecopy.ErrMoveTaken) && !errors.Is(done.Err, storecopy.ErrTaken) || i != 2 && done.Err != nil {
			t.Errorf("partition %d: %v", i, done.Err)
		}
		onlyOn(t, url, some[i], 1)
	}
}

// Several moves of a process that died are completed by the next one, or abandoned. No partition
// stays closed, and no record is lost.
func TestMovesThatDiedAreCompletedOrAbandoned(t *testing.T) {
	r := seed.Random(t)
	for _, abandon := range []bool{false, true} {
		for at := 1 + r.IntN(5); ; at += 1 + r.IntN(5) {
			url := shards(t, "sqlite", "sqlite")
			log, stop := run(t, url)
			some := on0(t, log, 6)
			died := &mortal{Set: set(t, url), at: at, done: r.IntN(2) == 0}
			m, err := storecopy.BeginMoves(t.Context(), died, some, 1, storecopy.MoveOptions{})
			if err == nil {
				m.Run(t.Context())
			}
			if abandon {
				if _, err := storecopy.AbandonMoves(t.Context(), set(t, url), some, nil); err != nil && !errors.Is(err, storecopy.ErrNotMoving) {
					t.Fatalf("step %d: %v", at, err)
				}
			}
			s := set(t, url)
			for _, p := range some {
				if state := placement(t, s, p).Move; abandon && (state == eventlog.MoveCopying || state == eventlog.MoveClosed) {
					t.Errorf("step %d: the move of partition %d was abandoned, and it is %s", at, p, state)
				}
			}
			if abandon { // those that were placed
				for _, p := range some {
					publishable(t, log, p, "c")
				}
			}
			m, err = storecopy.BeginMoves(t.Context(), s, some, 1, storecopy.MoveOptions{})
			if err == nil {
				for _, done := range m.Run(t.Context()) {
					if done.Err != nil && !errors.Is(done.Err, storecopy.ErrThere) {
						t.Errorf("step %d: %+v", at, done)
					}
				}
			} else if !errors.Is(err, storecopy.ErrThere) {
				t.Fatalf("step %d: %v", at, err)
			}
			want := "0:a 1:b"
			if abandon {
				want += " 2:c"
			}
			for _, p := range some {
				onlyOn(t, url, p, 1)
				if got := records(t, log, p); got != want {
					t.Errorf("step %d: partition %d holds %s", at, p, got)
				}
			}
			stop()
			if !died.dead {
				break
			}
		}
	}
}
