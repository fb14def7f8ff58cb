package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/use/keys"
)

// files are three SQLite files that are shards of one set, which several processes open.
type files struct{ dir string }

func (f files) path(shard int) string { return filepath.Join(f.dir, fmt.Sprint(shard, ".db")) }

// open opens the set as another process. Shard 1 is behind the frail store.
func (f files) open(t *testing.T, logger *slog.Logger) (*shard.Set, *frail) {
	t.Helper()
	var shards []shard.Shard
	var second *frail
	for i := range 3 {
		s, err := sqlite.Open(t.Context(), f.path(i), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var store eventlog.Store = s
		if i == 1 {
			second = newFrail(s)
			store = second
		}
		shards = append(shards, shard.Shard{Name: fmt.Sprint(i), Store: store})
	}
	set, err := shard.Open(t.Context(), shards, shard.Options{Rules: keys.Rules(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set, second
}

// restore puts a copy of a shard's file in its place, which is another incarnation.
func (f files) restore(t *testing.T, shard int) {
	t.Helper()
	bytes, err := os.ReadFile(f.path(shard))
	if err != nil {
		t.Fatal(err)
	}
	f.rename(t, shard, bytes)
}

// replace puts a backup in the place of a shard, without what its WAL has.
func (f files) replace(t *testing.T, shard int, backup []byte) {
	t.Helper()
	if err := os.Remove(f.path(shard) + "-wal"); err != nil {
		t.Fatal(err)
	}
	f.rename(t, shard, backup)
}

func (f files) rename(t *testing.T, shard int, bytes []byte) {
	t.Helper()
	err := os.WriteFile(f.path(shard)+".new", bytes, 0o600)
	if err == nil {
		err = os.Rename(f.path(shard)+".new", f.path(shard))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// knows waits until a process knows that a partition ends at next.
func knows(t *testing.T, log *eventlog.Log, p eventlog.Partition, next eventlog.Offset) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		b, _ := log.Known(p)
		if b.Next == next {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("partition %d: %+v, want the end %d", p, b, next)
		}
		changed := time.NewTimer(time.Millisecond)
		<-changed.C
	}
}

// A process hears of the epoch in which a shard was restored before it reaches that shard. What it
// remembers of the shard is lost; it does not take that for another loss, and what others appended
// since counts.
func TestALossThatAnEpochTellsIsNotFoundAgain(t *testing.T) {
	of := files{t.TempDir()}
	var p eventlog.Partition
	set, _ := of.open(t, quiet)
	stopped(t, set, func(log *eventlog.Log) {
		for _, p = range create(t, log, "topic", 3).Partitions {
			if p.Shard() == 1 {
				break
			}
		}
		if err := publish1(t.Context(), log, p, "v"); err != nil {
			t.Fatal(err)
		}
	})
	backup, err := os.ReadFile(of.path(1))
	if err != nil {
		t.Fatal(err)
	}
	set, second := of.open(t, quiet)
	log := run(t, set)
	for range 3 {
		if err := publish1(t.Context(), log, p, "lost"); err != nil {
			t.Fatal(err)
		}
	}
	second.down.Store(true)
	enters := func(epoch int32) {
		t.Helper()
		for until := time.Now().Add(time.Minute); log.LeaderEpoch() != epoch; {
			if time.Now().After(until) {
				t.Fatalf("the process is in epoch %d, and the other one in %d", log.LeaderEpoch(), epoch)
			}
			<-time.After(time.Millisecond)
		}
	}
	of.replace(t, 1, backup)
	set, _ = of.open(t, quiet)
	other := run(t, set)
	enters(other.LeaderEpoch())
	changed := other.IncarnationChanged()
	of.restore(t, 2) // another epoch, which does not begin on shard 1
	<-changed
	began := other.LeaderEpoch()
	if err := publish1(t.Context(), other, p, "v"); err != nil {
		t.Fatal(err)
	}
	enters(began)
	second.down.Store(false)
	knows(t, log, p, 2)
	for _, log := range []*eventlog.Log{log, other} {
		if _, end, known := log.EpochEnd(p, began, 2); end != 2 || !known || log.LeaderEpoch() != began {
			t.Errorf("in epoch %d a reader of epoch %d is told that it ended at %d (%v), not 2", log.LeaderEpoch(), began, end, known)
		}
	}
}

// A process that cannot reach one shard begins a leader epoch, because another shard was restored.
// What others appended to the shard meanwhile is not lost, and their consumers are not sent back.
func TestAnEpochBeginsOnlyWhereSomethingMayBeLost(t *testing.T) {
	for _, reached := range []bool{false, true} {
		t.Run(fmt.Sprint("the shard is reached ", reached), func(t *testing.T) {
			of := files{t.TempDir()}
			var ps [3]eventlog.Partition
			set, _ := of.open(t, quiet)
			stopped(t, set, func(log *eventlog.Log) {
				for _, p := range create(t, log, "topic", 3).Partitions {
					ps[p.Shard()] = p
					if err := publish1(t.Context(), log, p, "v"); err != nil {
						t.Fatal(err)
					}
				}
			})
			p := ps[1]
			set, second := of.open(t, quiet)
			log := run(t, set)
			knows(t, log, p, 1)
			second.down.Store(!reached)
			other, _ := of.open(t, quiet)
			var read int32
			stopped(t, other, func(log *eventlog.Log) {
				for range 9 {
					if err := publish1(t.Context(), log, p, "v"); err != nil {
						t.Fatal(err)
					}
				}
				read = log.LeaderEpoch() // a consumer has read ten records in it
			})
			changed := log.IncarnationChanged()
			of.restore(t, 2)
			<-changed
			if now := log.LeaderEpoch(); now <= read {
				t.Fatalf("no epoch began: %d, then %d", read, now)
			}
			second.down.Store(false)
			knows(t, log, p, 10)
			again, _ := of.open(t, quiet)
			for _, log := range []*eventlog.Log{log, run(t, again)} {
				if _, end, known := log.EpochEnd(p, read, 10); end != 10 || !known {
					t.Errorf("a reader of epoch %d is told that it ended at %d (%v), not 10", read, end, known)
				}
				if _, end, known := log.EpochEnd(ps[2], read, 2); end != 1 || !known {
					t.Errorf("a reader of the restored shard is told that epoch %d ended at %d (%v), not 1", read, end, known)
				}
			}
			// Records that come now count for the epoch before: nothing of it was lost here.
			if err := publish1(t.Context(), log, p, "v"); err != nil {
				t.Fatal(err)
			}
			if at := log.EpochAt(p, 10); at != read {
				t.Errorf("the next record of the shard that was not restored is of epoch %d, not %d", at, read)
			}
		})
	}
}

// Shard 0 loses the epoch in which another shard was restarted. That shard has lost nothing: the
// epoch stays one of its epochs, and its readers are not sent back.
func TestAnEpochThatShardZeroLostStaysOnOtherShards(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New()}
	var shards []shard.Shard
	for i, s := range stores {
		shards = append(shards, shard.Shard{Name: fmt.Sprint(i), Store: s})
	}
	set, err := shard.Open(t.Context(), shards, shard.Options{Rules: keys.Rules(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	log := run(t, set)
	ps := map[int]eventlog.Partition{}
	for _, p := range create(t, log, "topic", 2).Partitions {
		ps[p.Shard()] = p
	}
	publish := func() {
		t.Helper()
		for _, p := range ps {
			if err := publish1(t.Context(), log, p, "v"); err != nil {
				t.Fatal(err)
			}
		}
	}
	begins := func(put func(silently bool)) (epoch int32) {
		t.Helper()
		changed := log.IncarnationChanged()
		put(false)
		<-changed
		return log.LeaderEpoch()
	}
	publish()
	restore := stores[0].Backup()
	lost := begins(stores[1].Backup())
	publish()
	begins(restore)
	for on, want := range map[int]eventlog.Offset{0: 1, 1: 2} {
		if _, end, known := log.EpochEnd(ps[on], lost, 2); end != want || !known {
			t.Errorf("on shard %d a reader of epoch %d is told that it ended at %d (%v), not %d", on, lost, end, known, want)
		}
	}
}

// A process has heard of the incomplete copy of a partition that moves, and cannot reach the new
// shard any more when the partition is placed there.
func TestAHalfCopyIsNotTakenForALoss(t *testing.T) {
	of := files{t.TempDir()}
	var p eventlog.Partition
	set, _ := of.open(t, quiet)
	stopped(t, set, func(log *eventlog.Log) {
		for _, each := range create(t, log, "topic", 3).Partitions {
			if each.Shard() == 0 {
				p = each
			}
		}
		for range 3 {
			if err := publish1(t.Context(), log, p, "v"); err != nil {
				t.Fatal(err)
			}
		}
	})
	said := newLines()
	set, second := of.open(t, slog.New(said))
	log, err := eventlog.Open(t.Context(), set, eventlog.Config{Logger: slog.New(said), Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mover, _ := of.open(t, quiet)
	placed, err := mover.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := placed.Of(p)
	place := func(to eventlog.Placement) {
		t.Helper()
		made, err := mover.Place(t.Context(), []eventlog.Placing{{Partition: p, From: at, To: to}})
		if err != nil || made[0].Version == 0 {
			t.Fatal(made, err)
		}
		at = made[0]
	}
	id := p.Moved(1)
	place(eventlog.Placement{Shard: 0, ID: p, Moves: 1, Move: eventlog.MoveCopying, Other: 1, OtherID: id})
	slices, err := mover.View(0, p, p).Read(t.Context(), []eventlog.Span{{Partition: p, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil || len(slices[0].Batches) != 3 {
		t.Fatal(slices, err)
	}
	for i, b := range slices[0].Batches {
		entry := eventlog.Entry{Batches: []eventlog.Batch{b.Batch}}
		if i == 0 {
			entry.Batches = append([]eventlog.Batch{{Partition: p}}, entry.Batches...)
		}
		if out, err := mover.View(1, p, id).Commit(t.Context(), []eventlog.Entry{entry}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		if i == 0 {
			if _, _, err := set.Changes(t.Context(), eventlog.Mark{}); err != nil { // the process hears of the copy
				t.Fatal(err)
			}
			second.down.Store(true)
		}
	}
	changed := log.IncarnationChanged()
	place(eventlog.Placement{Shard: 1, ID: id, Moves: 1, Move: eventlog.MoveLeft, Other: 0, OtherID: p})
	planned, err := eventlog.Get(t.Context(), mover, eventlog.EpochKey)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-changed
	if now := log.LeaderEpoch(); eventlog.Version(now)+1 != planned.Version {
		t.Errorf("the process is in epoch %d, and the partition was placed with epoch %d", now, planned.Version-1)
	}
	if n, _ := said.count("epoch begins"); n > 0 {
		t.Errorf("%q", said.all)
	}
	second.down.Store(false)
	knows(t, log, p, 3)
	if got := values(t, log, p); len(got) != 3 {
		t.Errorf("the partition has %q", got)
	}
}

// A topic is deleted while one process cannot reach a shard. Another process, which reaches the
// shard and has not heard of that, appends to a partition there: what is acknowledged is in the
// topic, or the topic is gone and the record is refused, as on one store.
func TestADeletedTopicTakesNoRecords(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		t.Run(fmt.Sprint("the loss was noticed before ", noticed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
				second := newFrail(stores[1])
				log := run(t, openSet(t, stores[0], second, stores[2]))
				var p eventlog.Partition
				for _, each := range create(t, log, "topic", 3).Partitions {
					if each.Shard() == 1 {
						p = each
					}
				}
				other := openSet(t, stores[0], stores[1], stores[2])
				deaf, err := eventlog.Open(t.Context(), other, eventlog.Config{Logger: quiet, Poll: 1000 * time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- deaf.Run(ctx) }()
				defer func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
				if second.commits.Store(0); noticed {
					second.down.Store(true)
					time.Sleep(time.Second) // of fake time: the log polls
				}
				err = log.DeleteTopic(t.Context(), "topic")
				if noticed && (!errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "shard 1")) || !noticed && !errors.Is(err, eventlog.ErrUnsure) {
					t.Errorf("delete: %v", err)
				}
				if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "topic", Partitions: 1}); !errors.Is(err, eventlog.ErrTopicExists) {
					t.Errorf("another topic of that name: %v", err)
				}
				if err := publish1(t.Context(), deaf, p, "meanwhile"); err != nil {
					t.Error(err)
				}
				second.commits.Store(-1)
				second.down.Store(false)
				if noticed {
					time.Sleep(time.Minute)
					if got := values(t, log, p); fmt.Sprint(got) != "[meanwhile]" {
						t.Errorf("the topic was not deleted, and has %q", got)
					}
					if err := log.DeleteTopic(t.Context(), "topic"); err != nil {
						t.Error(err)
					}
				}
				for range 600 { // else it is completed when the shard answers again
					if _, err := log.TopicNow(t.Context(), "topic"); errors.Is(err, eventlog.ErrUnknownTopic) {
						break
					}
					time.Sleep(time.Second)
				}
				if err := publish1(t.Context(), deaf, p, "afterwards"); !errors.Is(err, eventlog.ErrNoPartition) {
					t.Errorf("publish to the deleted topic: %v", err)
				}
				for i, s := range stores {
					bounds, _, err := s.Changes(t.Context(), eventlog.Mark{})
					if want := max(0, 1-i); err != nil || len(bounds) != want {
						t.Errorf("shard %d holds %+v, %v", i, bounds, err)
					}
				}
			})
		})
	}
}
