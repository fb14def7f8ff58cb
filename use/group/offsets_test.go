package group_test

import (
	"context"
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

func simple(name string, offsets ...group.Committed) group.Commit {
	return group.Commit{Group: name, Generation: -1, Offsets: offsets}
}

// commit commits as a consumer that is no member.
func commit(t *testing.T, b *broker, name string, offsets ...group.Committed) {
	t.Helper()
	_, err := b.Commit(t.Context(), simple(name, offsets...))
	check(t, err)
}

// reader is the only member of group g, with its share of the topic orders.
func reader(t *testing.T, b *broker) *player {
	t.Helper()
	p := newPlayer(b, "g", "p")
	settle(t, p)
	return p
}

// restart stops a broker and starts another on its store.
func restart(t *testing.T, b *broker, store eventlog.Store) *broker {
	t.Helper()
	b.stop()
	return startBroker(t, store, group.Config{})
}

// wantNothingKept sees that nothing of any group is left in the store.
func wantNothingKept(t *testing.T, store eventlog.Store) {
	t.Helper()
	left, err := store.List(t.Context(), "group/", "", 10)
	check(t, err)
	if len(left) > 0 {
		t.Fatalf("the store still has %v", left)
	}
}

func TestOffsetsComeBackAsCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 3)
		orders[0].Offset, orders[0].LeaderEpoch, orders[0].Metadata = 42, 7, `"quoted" and ünusual`
		orders[2].Offset = 1
		commit(t, b, "g", orders[0], orders[2])
		for range 2 { // from memory, then from the store
			got, err := b.Fetch(t.Context(), "g", []group.TopicPartition{orders[2].TopicPartition, orders[1].TopicPartition, orders[0].TopicPartition})
			check(t, err)
			if got[0] != orders[2] || got[2] != orders[0] || got[1].Offset != -1 || got[1].LeaderEpoch != -1 {
				t.Fatalf("fetched %+v", got)
			}
			all, err := b.Fetch(t.Context(), "g", nil)
			check(t, err)
			if len(all) != 2 || all[0] != orders[0] || all[1] != orders[2] {
				t.Fatalf("fetched all: %+v", all)
			}
			b = restart(t, b, store)
		}
	})
}

func TestManyOffsetsLoadFromTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 10_000)
		for i := range orders {
			orders[i].Offset = eventlog.Offset(i)
		}
		commit(t, b, "g", orders...)
		b = restart(t, b, store)
		all, err := b.Fetch(t.Context(), "g", nil)
		check(t, err)
		for i := range orders {
			if all[i] != orders[i] {
				t.Fatalf("partition %d: %+v", i, all[i])
			}
		}
	})
}

func TestWhoMayCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := reader(t, b)
		as := func(member string, generation int32) error {
			_, err := b.Commit(t.Context(), group.Commit{Group: "g", Member: member, Generation: generation, Offsets: []group.Committed{o}})
			return err
		}
		check(t, as(p.join.Member, 1))
		wantErr(t, as(p.join.Member, 0), group.ErrIllegalGeneration)
		wantErr(t, as(p.join.Member, 2), group.ErrIllegalGeneration)
		wantErr(t, as("stranger", 1), group.ErrUnknownMember)
		wantErr(t, as("", -1), group.ErrUnknownMember) // the group has members: it is theirs
		_, err := b.Commit(t.Context(), group.Commit{Group: "new", Member: "m", Generation: 1, Offsets: []group.Committed{o}})
		wantErr(t, err, group.ErrIllegalGeneration)

		// Between the join and the assignment, a commit is from before.
		check(t, p.enter(t.Context()))
		wantErr(t, as(p.join.Member, 2), group.ErrRebalancing)
		check(t, p.sync(t.Context()))
		check(t, as(p.join.Member, 2))
	})
}

// A round that never got its assignment must not reach the store by way of a commit: after a
// restart it would pass for a whole one.
func TestNobodyCommitsBeforeTheFirstAssignment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		check(t, p.enter(t.Context()))
		ctx, goAway := context.WithTimeout(t.Context(), time.Second)
		defer goAway()
		wantErr(t, q.enter(ctx), group.ErrUnavailable) // the next round has begun, and waits for p
		wantErr(t, p.commit(t.Context(), o), group.ErrRebalancing)
		wantNothingKept(t, store)
	})
}

func TestLongMetadataIsRefusedAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 2)
		orders[0].Metadata = strings.Repeat("x", 4097)
		orders[1].Metadata = strings.Repeat("x", 4096)
		errs, err := b.Commit(t.Context(), simple("g", at(orders[0], 1), at(orders[1], 2)))
		check(t, err)
		wantErr(t, errs[0], group.ErrMetadataTooLarge)
		check(t, errs[1])
		wantOffset(t, b, "g", orders[0].TopicPartition, -1)
		wantOffset(t, b, "g", orders[1].TopicPartition, 2)
	})
}

// A request may mention a partition more than once. One change may not put a key twice, so the last
// mention counts.
func TestOfAPartitionCommittedTwiceTheLastMentionCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 2)
		errs, err := b.Commit(t.Context(), simple("g", at(orders[0], 5), at(orders[1], 7), at(orders[0], 3)))
		check(t, err)
		for _, err := range errs {
			check(t, err)
		}
		wantOffset(t, b, "g", orders[0].TopicPartition, 3)
		wantOffset(t, b, "g", orders[1].TopicPartition, 7)
	})
}

// The last commit that a client sent is the one that stays, also when many are on their way at
// once.
func TestCommitsOnTheirWayKeepTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		slow := &slowStore{Store: store, by: time.Second}
		b := startBroker(t, slow, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := reader(t, b)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { check(t, p.commit(t.Context(), at(o, eventlog.Offset(i+1)))) })
			time.Sleep(time.Millisecond) // they are submitted in this order
		}
		wg.Wait()
		wantOffset(t, b, "g", o.TopicPartition, 4)
		b.stop()
		wantOffset(t, startBroker(t, store, group.Config{}), "g", o.TopicPartition, 4)
	})
}

// A commit that is on its way when its group is deleted came first, or not at all: nothing of it
// stays behind.
func TestCommitOnItsWayDoesNotOutliveTheGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, &slowStore{Store: store, by: time.Second}, group.Config{})
		orders := b.topic(t, "orders", 2)
		commit(t, b, "g", orders[0])
		var wg sync.WaitGroup
		wg.Go(func() {
			commit(t, b, "g", orders[1])
		})
		time.Sleep(100 * time.Millisecond)
		check(t, b.Delete(t.Context(), "g"))
		wg.Wait()
		wantOffset(t, b, "g", orders[1].TopicPartition, -1)
		wantNothingKept(t, store)
	})
}

// An old offset whose successor is on its way is not an old one.
func TestCommitOnItsWayDoesNotExpire(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		every := 10 * time.Minute
		start := time.Now() // sweeps begin here
		b := startBroker(t, &slowStore{Store: memory.New(), by: time.Second}, group.Config{}.With(group.Limits{OffsetRetention: time.Hour, ExpireEvery: every}))
		orders, other := b.topic(t, "orders", 1)[0], b.topic(t, "other", 1)[0]
		p := reader(t, b)
		p.beatUntil(t, start.Add(every/2))
		check(t, p.commit(t.Context(), at(orders, 3), at(other, 4)))
		p.beatUntil(t, start.Add(7*every-500*time.Millisecond))
		check(t, p.commit(t.Context(), at(other, 5))) // the sweep comes while it travels
		time.Sleep(5 * time.Second)
		wantOffset(t, b, "g", other.TopicPartition, 5)
	})
}

type slowStore struct {
	eventlog.Store
	by time.Duration
}

func (s *slowStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(s.by)
	return s.Store.Commit(ctx, flush)
}

func TestCommitsOfManyMembersShareAFlush(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: &slowStore{Store: memory.New(), by: 10 * time.Millisecond}}
		b := startBroker(t, counted, group.Config{})
		orders := b.topic(t, "orders", 50)
		commit(t, b, "g", orders[0])
		counted.commits.Store(0)
		var wg sync.WaitGroup
		for _, o := range orders {
			wg.Go(func() {
				commit(t, b, "g", at(o, 5))
			})
		}
		wg.Wait()
		if n := counted.commits.Load(); n > 2 {
			t.Fatalf("50 commits took %d flushes", n)
		}
	})
}

type countingStore struct {
	eventlog.Store
	commits, lists, gets atomic.Int64
}

func (s *countingStore) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, "group/state/") }) {
		s.gets.Add(1)
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

func (s *countingStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.commits.Add(1)
	return s.Store.Commit(ctx, flush)
}

func (s *countingStore) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "group/") {
		s.lists.Add(1)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// A group without members costs nothing, and one with members a sign of its owner every third of
// the session, however many members there are and however often they are heard.
func TestIdleGroupsCostNextToNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: memory.New()}
		b := startBroker(t, counted, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := reader(t, b)
		check(t, p.commit(t.Context(), orders[0]))
		commit(t, b, "simple", orders[0])
		counted.commits.Store(0)
		counted.lists.Store(0)
		p.beatUntil(t, time.Now().Add(50*time.Minute))
		// Four lists for a sweep every ten: states, offsets, where groups began, heartbeats of
		// peers.
		if c, l := counted.commits.Load(), counted.lists.Load(); c > int64(50*time.Minute/(session/3)) || l > 20 {
			t.Fatalf("50 minutes of heartbeats took %d commits and %d lists", c, l)
		}
	})
}

func TestDeletedOffsetsAreGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders, other := b.topic(t, "orders", 1)[0], b.topic(t, "other", 1)[0]
		p := reader(t, b)
		check(t, p.commit(t.Context(), at(orders, 3), at(other, 4)))
		errs, err := b.DeleteOffsets(t.Context(), "g", []group.Committed{orders, other})
		check(t, err)
		wantErr(t, errs[0], group.ErrSubscribed)
		check(t, errs[1])
		for range 2 {
			wantOffset(t, b, "g", orders.TopicPartition, 3)
			wantOffset(t, b, "g", other.TopicPartition, -1)
			b = restart(t, b, store)
		}
		_, err = b.DeleteOffsets(t.Context(), "nobody", []group.Committed{orders})
		wantErr(t, err, group.ErrNotFound)
	})
}

func TestDeletedGroupLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := reader(t, b)
		check(t, p.commit(t.Context(), at(o, 3)))
		wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotEmpty)
		_, err := b.Leave(t.Context(), "g", []group.Leaver{{Member: p.join.Member}})
		check(t, err)
		check(t, b.Delete(t.Context(), "g"))
		wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotFound)
		wantOffset(t, b, "g", o.TopicPartition, -1)
		wantNothingKept(t, store)
	})
}

// Topic ids tell a topic from its namesake (KIP-516): old offsets must not make a consumer of the
// new one skip.
func TestOffsetsDoNotOutliveTheirTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		old := b.topic(t, "orders", 1)[0]
		kept := b.topic(t, "kept", 1)[0]
		commit(t, b, "g", at(old, 100), at(kept, 1))
		check(t, b.log.DeleteTopic(t.Context(), "orders"))
		again := b.topic(t, "orders", 1)[0]
		wantOffset(t, b, "g", again.TopicPartition, -1)
		all, err := b.Fetch(t.Context(), "g", nil)
		check(t, err)
		if len(all) != 1 || all[0].Name != "kept" {
			t.Fatalf("fetched %+v, want the kept topic's offset alone", all)
		}
		time.Sleep(25 * time.Minute)
		left, err := store.List(t.Context(), "group/offset/", "", 10)
		check(t, err)
		if len(left) != 1 {
			t.Fatalf("the store has %d offsets, want 1: %v", len(left), left)
		}
	})
}

const day = 24 * time.Hour

func TestOffsetsExpireAfterTheGroupIsEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		cfg := group.Config{}.With(group.Limits{OffsetRetention: day})
		b := startBroker(t, store, cfg)
		o := b.topic(t, "orders", 1)[0]
		p := reader(t, b)
		check(t, p.commit(t.Context(), at(o, 3)))
		p.beatUntil(t, time.Now().Add(25*time.Hour)) // at work, without a commit
		_, err := b.Leave(t.Context(), "g", []group.Leaver{{Member: p.join.Member}})
		check(t, err)
		time.Sleep(20 * time.Hour)
		b.stop()
		b = startBroker(t, store, cfg)
		wantOffset(t, b, "g", o.TopicPartition, 3) // also a look at it after a restart does not start the time again
		time.Sleep(5 * time.Hour)
		groups, err := b.List(t.Context(), nil)
		check(t, err)
		left, err := store.List(t.Context(), "group/", "", 10)
		check(t, err)
		if len(groups) > 0 || len(left) > 0 {
			t.Fatalf("still there: %v, %v", groups, left)
		}
	})
}

func TestOffsetsOfSimpleConsumersExpireOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 2)
		commit(t, b, "g", at(orders[0], 1), at(orders[1], 1))
		time.Sleep(6 * day)
		commit(t, b, "g", at(orders[1], 2))
		time.Sleep(day + time.Hour)
		wantOffset(t, b, "g", orders[0].TopicPartition, -1)
		wantOffset(t, b, "g", orders[1].TopicPartition, 2)
	})
}

func TestOffsetsOfAnAbandonedTopicExpire(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{OffsetRetention: time.Hour}))
		orders, other := b.topic(t, "orders", 1)[0], b.topic(t, "other", 1)[0]
		p := reader(t, b)
		check(t, p.commit(t.Context(), at(orders, 3), at(other, 4)))
		p.beatUntil(t, time.Now().Add(90*time.Minute))
		wantOffset(t, b, "g", orders.TopicPartition, 3)
		wantOffset(t, b, "g", other.TopicPartition, -1)
	})
}

// Members that nobody plays any more, because they died while no broker ran, do not keep offsets
// for ever.
func TestGroupsOfTheDeadExpire(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := reader(t, b)
		check(t, p.commit(t.Context(), o))
		b.stop()
		startBroker(t, store, group.Config{})
		time.Sleep(15 * day)
		wantNothingKept(t, store)
	})
}

func TestGroupsAreToldApartWhateverTheirNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		names := []string{"", "a", "a/b", "a%2Fb", "a/", "/a", "ü", "a\x00b", "a b", "group/state/a", "..", "a/" + o.Topic.String() + "/0", strings.Repeat("/", 512)}
		for i, name := range names {
			commit(t, b, name, at(o, eventlog.Offset(i)))
		}
		for range 2 {
			for i, name := range names {
				wantOffset(t, b, name, o.TopicPartition, eventlog.Offset(i))
			}
			listed, err := b.List(t.Context(), []string{"EMPTY"})
			check(t, err)
			if len(listed) != len(names) {
				t.Fatalf("listed %v", listed)
			}
			b = restart(t, b, store)
		}
		_, err := b.Commit(t.Context(), simple(strings.Repeat("x", 513), o))
		wantErr(t, err, group.ErrInvalidGroup)
	})
}

func TestLagIsWhatIsLeftToRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 2)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		_, err = b.log.Publish(t.Context(), topic.Partitions[1], make([]batch.Record, 10)...)
		check(t, err)
		commit(t, b, "g", at(orders[0], 0), at(orders[1], 4))
		b = restart(t, b, store) // a group is seen before anybody asks for it
		synctest.Wait()
		stats, lags, err := b.Stats(t.Context())
		check(t, err)
		if len(stats) != 1 || stats[0].Group != "g" || len(lags) != 2 {
			t.Fatalf("stats %+v, lags %+v", stats, lags)
		}
		for _, l := range lags {
			if want := int64(l.Partition) * 6; l.Records != want || l.Name != "orders" {
				t.Fatalf("lag %+v, want %d", l, want)
			}
		}
	})
}
