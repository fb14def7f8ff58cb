package group_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// sqlPositions is a group.Beside that keeps what a test commits with it.
type sqlPositions struct {
	mu    sync.Mutex                 // guards kept
	kept  map[string]eventlog.Offset // by key
	carry func(group string) error   // called by Carried, for each group
}

func (s *sqlPositions) keep(name string, offsets ...group.Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offsets {
		s.kept[group.OffsetKey(name, o.TopicPartition)] = o.Offset
	}
}

func (s *sqlPositions) Positions(_ context.Context, _ string, of []group.TopicPartition) ([]group.Position, error) {
	return make([]group.Position, len(of)), nil
}

func (s *sqlPositions) Keeps(_ context.Context, name string, of []group.TopicPartition) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make([]bool, len(of))
	for i, tp := range of {
		_, kept[i] = s.kept[group.OffsetKey(name, tp)]
	}
	return kept, nil
}

func (s *sqlPositions) Mark(eventlog.Offset, group.Position) string { return "" }

func (s *sqlPositions) Carried(_ context.Context, groups []string, _ []group.TopicPartition) error {
	if s.carry == nil {
		return nil
	}
	for _, name := range groups {
		if err := s.carry(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlPositions) Forget(_ context.Context, groups []string, of []group.TopicPartition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.kept, func(key string, _ eventlog.Offset) bool {
		return slices.ContainsFunc(groups, func(name string) bool {
			if of == nil {
				return strings.HasPrefix(key, "group/offset/"+name+"/")
			}
			return slices.ContainsFunc(of, func(tp group.TopicPartition) bool { return key == group.OffsetKey(name, tp) })
		})
	})
	return nil
}

// both commits offsets in both places.
func (s *sqlPositions) both(t *testing.T, b *broker, name string, offsets ...group.Committed) {
	t.Helper()
	commit(t, b, name, offsets...)
	s.keep(name, offsets...)
}

// publishForGood appends records to all partitions of a topic, for good.
func publishForGood(t *testing.T, b *broker, name string, records int) {
	t.Helper()
	topic, err := b.log.AlterTopic(t.Context(), name, func(config map[string]string) error {
		config["retention.ms"] = "-1"
		return nil
	})
	check(t, err)
	for _, p := range topic.Partitions {
		list := make([]batch.Record, records)
		for i := range list {
			list[i] = batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}
		}
		sealed, err := topic.Seal(p, list)
		check(t, err)
		_, err = b.log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{sealed}})
		check(t, err)
	}
}

// want checks what both places have.
func (s *sqlPositions) want(t *testing.T, b *broker, when string, want ...group.Committed) {
	t.Helper()
	wanted := make(map[string]eventlog.Offset)
	for _, o := range want {
		wanted[group.OffsetKey("g", o.TopicPartition)] = o.Offset
	}
	synctest.Wait()
	s.mu.Lock()
	kept := maps.Clone(s.kept)
	s.mu.Unlock()
	if !maps.Equal(kept, wanted) {
		t.Errorf("%s SQL has %v, want %v", when, kept, wanted)
	}
	keys := slices.Sorted(maps.Keys(stored(t, b, "group/offset/")))
	if all := slices.Sorted(maps.Keys(wanted)); !slices.Equal(keys, all) {
		t.Errorf("%s there are the keys %v, want %v", when, keys, all)
	}
}

func TestWhatSQLCommittedGoesWithTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset)}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		orders := b.topic(t, "orders", 3)
		publishForGood(t, b, "orders", 10)
		first, second, third := at(orders[0], 1), at(orders[1], 2), at(orders[2], 3)
		sql.both(t, b, "g", first, second, third)
		if errs, err := b.DeleteOffsets(t.Context(), "g", []group.Committed{second}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		sql.want(t, b, "after a deletion of offsets", first, third)
		time.Sleep(4 * day)
		sql.both(t, b, "g", third)
		time.Sleep(4 * day)
		sql.want(t, b, "after one has expired", third)
		time.Sleep(4 * day)
		sql.want(t, b, "after all have expired")
		if left := stored(t, b, "group/state/"); len(left) > 0 {
			t.Errorf("there are the groups %v", left)
		}
	})
}

func TestWhatSQLCommittedOfPeersGoesWithTheTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset)}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		kept, orders := at(b.topic(t, "kept", 1)[0], 3), at(b.topic(t, "orders", 1)[0], 4)
		p := joinPeer(t, b, group.PeerConfig{Topics: []string{"kept", "orders"}})
		check(t, p.Commit(t.Context(), []group.Committed{kept, orders}))
		sql.keep("g", kept, orders)
		check(t, b.log.DeleteTopic(t.Context(), "orders"))
		time.Sleep(time.Hour)
		sql.want(t, b, "after its topic", kept)
	})
}

// What a group commits with SQL while its old offsets are about to be deleted stays.
func TestAnOffsetThatSQLCommitsWhileTheGroupExpiresStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset)}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		o := at(b.topic(t, "orders", 1)[0], 3)
		publishForGood(t, b, "orders", 10)
		sql.both(t, b, "g", o)
		carried := 0
		sql.carry = func(string) error {
			if carried++; carried > 1 {
				return nil
			}
			state, err := b.log.Get(t.Context(), group.StateKey("g"))
			check(t, err)
			_, err = b.log.Append(t.Context(), group.OffsetEntry(state, "g", []group.Committed{at(o, 5)}))
			check(t, err)
			return nil
		}
		time.Sleep(8 * day)
		synctest.Wait()
		wantOffset(t, b, "g", o.TopicPartition, 5)
		if carried == 0 {
			t.Error("the group did not expire")
		}
	})
}

// Who consumes with SQL is not a member: in a quiet topic nothing shows that it is there.
func TestAnOffsetOfSQLStaysWhileThereIsNothingToCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset)}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		orders := b.topic(t, "orders", 2)
		publishForGood(t, b, "orders", 10)
		behind, atEnd := at(orders[0], 9), at(orders[1], 10)
		sql.both(t, b, "g", behind, atEnd)
		commit(t, b, "kafka", atEnd)
		time.Sleep(20 * day)
		sql.want(t, b, "while one partition is quiet", atEnd)
		publishForGood(t, b, "orders", 1)
		time.Sleep(6 * day)
		sql.want(t, b, "while the first event is young", atEnd)
		time.Sleep(2 * day)
		sql.want(t, b, "when it is old")
	})
}

// While one offset's position is deleted, another one expires: its own goes with its key, later.
func TestWhatSQLCommittedGoesWithAKeyThatExpiresMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var waited atomic.Int32
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset), carry: func(string) error {
			if waited.Add(1) == 1 {
				time.Sleep(day + time.Hour) // the second one expires
			}
			return nil
		}}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		orders := b.topic(t, "orders", 3)
		publishForGood(t, b, "orders", 10)
		sql.both(t, b, "g", at(orders[0], 1))
		time.Sleep(day)
		sql.both(t, b, "g", at(orders[1], 2))
		time.Sleep(2 * day)
		third := at(orders[2], 3)
		sql.both(t, b, "g", third)
		time.Sleep(6 * day)
		if waited.Load() == 0 {
			t.Fatal("nothing expired")
		}
		sql.want(t, b, "after the second one has expired", third)
	})
}

func TestAGroupWhosePositionsAreNotCarriedKeepsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sql := &sqlPositions{kept: make(map[string]eventlog.Offset), carry: func(name string) error {
			if name != "g" {
				return fmt.Errorf("%w after 3s", group.ErrNotCarried)
			}
			return nil
		}}
		b := startBroker(t, memory.New(), group.Config{Beside: sql})
		o := at(b.topic(t, "orders", 1)[0], 3)
		publishForGood(t, b, "orders", 10)
		const stuck = 50 // one of them is swept before g
		for i := range stuck {
			sql.both(t, b, fmt.Sprint("stuck", i), o)
		}
		sql.both(t, b, "g", o)
		time.Sleep(7*day + 11*time.Minute) // one sweep, or two
		synctest.Wait()
		if left := stored(t, b, "group/state/"); len(left) != stuck {
			t.Errorf("there are the groups %v, want the %d whose positions are not carried", slices.Sorted(maps.Keys(left)), stuck)
		}
	})
}
