package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/pgtest"
)

// inPartition is an event for a partition of its own choice.
func inPartition(topic string, partition int32, value string) weir.Event {
	return weir.Event{Topic: topic, Partition: partition, Value: []byte(value)}
}

// Whoever reads from the latest misses nothing that was published while they were there, wherever.
func TestLatestReadsWhatComesLaterFromItsBeginning(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		w, other := s.open(t), s.open(t, weir.Options{Partitioner: weir.ByPartitionField})
		for _, name := range []string{"grows", "again"} {
			ensure(t, w, name, 1)
			publish(t, w, name, "before "+name)
		}
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"grows", "again", "comes"}, Start: weir.Latest, Handler: got.note})
		assigned(t, 2, c)
		if err := errors.Join(
			other.EnsureTopic(t.Context(), weir.Topic{Name: "comes"}),
			other.RaisePartitions(t.Context(), "grows", 3),
			other.DeleteTopic(t.Context(), "again"),
			other.EnsureTopic(t.Context(), weir.Topic{Name: "again"}),
		); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Publish(t.Context(), inPartition("comes", 0, "comes"), inPartition("again", 0, "again"),
			inPartition("grows", 0, "grows 0"), inPartition("grows", 1, "grows 1"), inPartition("grows", 2, "grows 2")); err != nil {
			t.Fatal(err)
		}
		v := values(got.wait(t, 5))
		slices.Sort(v)
		if want := []string{"again", "comes", "grows 0", "grows 1", "grows 2"}; !slices.Equal(v, want) {
			t.Errorf("got %q, want %q", v, want)
		}
	})
}

// A partition that came while nobody of the group was there is younger than the group, too.
func TestLatestReadsAPartitionThatCameWhileTheGroupWasAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		w := s.open(t, weir.Options{Partitioner: weir.ByPartitionField})
		ensure(t, w, "orders", 2)
		sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Start: weir.Latest, Handler: (&seen{}).note}
		c := consume(t, w, sub)
		assigned(t, 2, c)
		closeConsumer(t, c)
		if err := w.RaisePartitions(t.Context(), "orders", 3); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Publish(t.Context(), inPartition("orders", 1, "old one"), inPartition("orders", 2, "new one")); err != nil {
			t.Fatal(err)
		}
		var got seen
		sub.Handler = got.note
		consume(t, w, sub)
		v := values(got.wait(t, 2))
		slices.Sort(v)
		if !slices.Equal(v, []string{"new one", "old one"}) {
			t.Errorf("got %q", v)
		}
	})
}

// However many begin a group at once, none of them takes what another has not begun yet for
// something new.
func TestManyWhoBeginAtTheLatestGetNothingOld(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		const partitions, members = 8, 6
		w := s.open(t)
		ensure(t, w, "orders", partitions)
		for i := range 50 {
			publish(t, w, "orders", fmt.Sprintf("key%d=old", i))
		}
		var got seen
		consumers := make([]*weir.Consumer, members)
		var wait sync.WaitGroup
		for i := range members {
			wait.Go(func() {
				c, err := w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Start: weir.Latest, Handler: got.note})
				if err != nil {
					t.Error(err)
				}
				consumers[i] = c // closed with its Log
			})
		}
		if wait.Wait(); t.Failed() {
			return
		}
		assigned(t, partitions, consumers...)
		if g, err := w.Group(t.Context(), "g"); err != nil || len(g.Offsets) != partitions || g.Lag != 0 {
			t.Errorf("%+v, %v", g, err)
		}
		for i := range 50 {
			publish(t, w, "orders", fmt.Sprintf("key%d=new", i))
		}
		for _, v := range values(got.wait(t, 50)) {
			if v != "new" {
				t.Fatalf("got %q", v)
			}
		}
	})
}

// A group that has not handled anything yet is behind by all there is, and everybody can see it.
func TestAGroupThatHandledNothingHasLag(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 100)...)
		failed := make(chan struct{}, 1000)
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(-1), Handler: func(context.Context, weir.Event) error {
			select {
			case failed <- struct{}{}:
			default:
			}
			return errors.New("it does not work yet")
		}})
		next(t, failed)
		lag := func() (n int64) {
			g, err := w.Group(t.Context(), "g")
			if err != nil || len(g.Offsets) != 1 || g.Offsets[0].Lag != g.Lag || g.Offsets[0].Committed != 0 {
				t.Fatalf("%+v, %v", g, err)
			}
			if s.kind == "postgres" {
				if sql := pgtest.Value(t, s.url, `SELECT sum(lag)::bigint FROM weir.groups`); sql != fmt.Sprint(g.Lag) {
					t.Errorf("SQL tells a lag of %s, the library of %d", sql, g.Lag)
				}
			}
			return g.Lag
		}
		if n := lag(); n != 100 {
			t.Errorf("the lag is %d, want 100", n)
		}
		topic, err := w.Core().Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Core().Trim(t.Context(), topic.Partitions[0], 30); err != nil {
			t.Fatal(err)
		}
		if n := lag(); n != 70 {
			t.Errorf("with 30 events gone the lag is %d, want 70", n)
		}
		if err := c.Seek(t.Context(), weir.AtOffset(90)); err != nil {
			t.Fatal(err)
		}
		if g, err := w.Group(t.Context(), "g"); err != nil || g.Lag != 10 {
			t.Errorf("after the seek: %+v, %v", g, err)
		}
		closeConsumer(t, c)
		if err := w.ResetGroup(t.Context(), "g", "orders", weir.Earliest); err != nil {
			t.Fatal(err)
		}
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		if v := values(got.wait(t, 70)); v[0] != "30" || v[69] != "99" {
			t.Errorf("got %q", v)
		}
	})
}
