package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

func TestEnsureTopicAgainChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		topic := weir.Topic{Name: "orders", Partitions: 3, Config: map[string]string{"retention.ms": "60000"}}
		for range 2 {
			if err := w.EnsureTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, w, "orders", "a", "b")
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		got.wait(t, 2)
		for _, again := range []weir.Topic{topic, {Name: "orders"}, {Name: "orders", Partitions: 3}, {Name: "orders", Config: map[string]string{"retention.bytes": "-1"}}} {
			if err := w.EnsureTopic(t.Context(), again); err != nil {
				t.Errorf("with events and a group, %+v: %v", again, err)
			}
		}
		publish(t, w, "orders", "c")
		if v := values(got.wait(t, 3)); len(v) != 3 {
			t.Errorf("after that: %q", v)
		}
	})
}

func TestEnsureTopicNamesWhatDiffers(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 3)
	for _, c := range []struct {
		topic weir.Topic
		says  []string
	}{
		{weir.Topic{Name: "orders", Partitions: 5}, []string{"3 partitions, but 5 were asked for", "RaisePartitions"}},
		{weir.Topic{Name: "orders", Partitions: 1}, []string{"3 partitions, but 1 were asked for"}},
		{weir.Topic{Name: "orders", Config: map[string]string{"retention.ms": "1", "retention.bytes": "2"}},
			[]string{"retention.bytes=-1, but 2 was asked for", "retention.ms=604800000, but 1 was asked for"}},
	} {
		err := w.EnsureTopic(t.Context(), c.topic)
		if !errors.Is(err, weir.ErrTopicDiffers) {
			t.Errorf("%+v: %v, want ErrTopicDiffers", c.topic, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: the error %q does not say %q", c.topic, err, text)
			}
		}
	}
	if topics, err := w.Topics(t.Context()); err != nil || len(topics) != 1 || topics[0].Partitions != 3 {
		t.Errorf("afterwards: %+v, %v", topics, err)
	}
}

// What another process has just changed counts, though this one has not heard of it.
func TestEnsureTopicLooksBeforeItSaysThatATopicDiffers(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		quiet := weir.Options{Poll: time.Hour}
		w, other := s.open(t, quiet), s.open(t, quiet)
		ensure(t, w, "orders", 1)
		ensure(t, other, "orders", 1)
		sixty := map[string]string{"retention.ms": "60000"}
		for _, c := range []struct {
			change func() error
			now    weir.Topic
		}{
			{func() error { return other.RaisePartitions(t.Context(), "orders", 4) }, weir.Topic{Partitions: 4}},
			{func() error { return other.AlterTopic(t.Context(), "orders", sixty) }, weir.Topic{Config: sixty}},
			{func() error {
				return errors.Join(other.DeleteTopic(t.Context(), "orders"), other.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 2}))
			}, weir.Topic{Partitions: 2}},
		} {
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			c.now.Name = "orders"
			if err := w.EnsureTopic(t.Context(), c.now); err != nil {
				t.Error(err)
			}
		}
	})
}

// What another process has just deleted is made, though this one has not heard of it; and what is
// published then goes there.
func TestEnsureTopicMakesATopicThatOthersHaveDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		quiet := weir.Options{Poll: time.Hour}
		w, other := s.open(t, quiet), s.open(t, quiet)
		ensure(t, other, "orders", 1)
		ensure(t, w, "orders", 1)
		if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "first")
		if topics, err := other.Topics(t.Context()); err != nil || len(topics) != 1 {
			t.Errorf("EnsureTopic said nil, and the topics are %+v, %v", topics, err)
		}
	})
}

func TestBadTopicsAreNotMade(t *testing.T) {
	w := newSite(t, "memory").open(t)
	for _, topic := range []weir.Topic{
		{Name: "orders", Partitions: -99}, {Name: "orders", Partitions: -1}, {Name: "orders", Partitions: 10_001}, {Name: ""}, {Name: "with space"},
		{Name: "orders", Config: map[string]string{"retention.ms": "soon"}}, {Name: "orders", Config: map[string]string{"no.such": "1"}},
	} {
		var invalid *weir.InvalidError
		if err := w.EnsureTopic(t.Context(), topic); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v, want an InvalidError", topic, err)
		}
	}
	if topics, err := w.Topics(t.Context()); err != nil || len(topics) != 0 {
		t.Errorf("afterwards: %+v, %v", topics, err)
	}
}

func TestPartitionsAreRaisedWhenAsked(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 2)
		var got seen
		c := consume(t, other, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		for range 2 {
			if err := w.RaisePartitions(t.Context(), "orders", 4); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.RaisePartitions(t.Context(), "orders", 3); err == nil {
			t.Error("from 4 to 3: no error")
		}
		for i := range 4 {
			publish(t, w, "orders", numbered("k", 10)[i]+"=v")
		}
		assigned(t, 4, c)
		got.wait(t, 4)
	})
}

func TestTopicsAreAlteredAndDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "old")
		if err := w.AlterTopic(t.Context(), "orders", map[string]string{"retention.ms": "60000", "retention.bytes": "7"}); err != nil {
			t.Fatal(err)
		}
		if err := w.AlterTopic(t.Context(), "orders", map[string]string{"retention.bytes": ""}); err != nil {
			t.Fatal(err)
		}
		topics, err := w.Topics(t.Context())
		if err != nil || len(topics) != 1 || len(topics[0].Config) != 1 || topics[0].Config["retention.ms"] != "60000" {
			t.Fatalf("altered: %+v, %v", topics, err)
		}
		if err := w.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := w.DeleteTopic(t.Context(), "orders"); !errors.Is(err, weir.ErrUnknownTopic) {
			t.Errorf("deleted twice: %v", err)
		}
		if _, err := w.Publish(t.Context(), events("orders", "late")...); !errors.Is(err, weir.ErrUnknownTopic) {
			t.Errorf("publish to a deleted topic: %v", err)
		}
		ensure(t, w, "orders", 2)
		publish(t, w, "orders", "new")
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"new"}) {
			t.Errorf("of the topic made anew: %q", v)
		}
	})
}

// Members come and go, and between them the group is reset: each time it works.
func TestAGroupIsResetAfterEachOfItsConsumers(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 3)...)
		for range 3 {
			if err := w.ResetGroup(t.Context(), "billing", "orders", weir.Earliest); err != nil {
				t.Fatal(err)
			}
			var got seen
			c := consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: got.note})
			got.wait(t, 3)
			closeConsumer(t, c)
		}
	})
}

func TestGroupsShowTheirLagAndAreResetAndDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 10)...)
		hold := make(chan struct{})
		var got seen
		c := consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Name: "worker-1", Handler: func(ctx context.Context, e weir.Event) error {
			if e.Offset == 4 {
				<-hold
			}
			return got.note(ctx, e)
		}})
		got.wait(t, 4)
		eventually(t, "four events are committed", func() bool {
			g, err := w.Group(t.Context(), "billing")
			return err == nil && g.Lag == 6
		})
		g, err := w.Group(t.Context(), "billing")
		if err != nil || len(g.Members) != 1 || g.Members[0].Name != "worker-1" || g.Offsets[0].Committed != 4 || g.Offsets[0].Next != 10 {
			t.Errorf("the group at work: %+v, %v", g, err)
		}
		if err := w.ResetGroup(t.Context(), "billing", "orders", weir.Earliest); !errors.Is(err, weir.ErrGroupInUse) {
			t.Errorf("reset of a group at work: %v, want ErrGroupInUse", err)
		}
		if err := w.DeleteGroup(t.Context(), "billing"); !errors.Is(err, weir.ErrGroupInUse) {
			t.Errorf("deletion of a group at work: %v, want ErrGroupInUse", err)
		}
		close(hold)
		got.wait(t, 10)
		closeConsumer(t, c)
		for _, to := range []struct {
			position weir.Position
			lag      int64
		}{{weir.Earliest, 10}, {weir.Latest, 0}, {weir.AtOffset(7), 3}} {
			if err := w.ResetGroup(t.Context(), "billing", "orders", to.position); err != nil {
				t.Fatal(err)
			}
			if g, err := w.Group(t.Context(), "billing"); err != nil || g.Lag != to.lag || len(g.Members) != 0 {
				t.Errorf("reset to %v: %+v, %v", to.position, g, err)
			}
		}
		if err := w.ResetGroup(t.Context(), "billing", "orders", weir.AtOffset(11)); err == nil {
			t.Error("reset behind the end worked")
		}
		if names, err := w.Groups(t.Context()); err != nil || !slices.Equal(names, []string{"billing"}) {
			t.Errorf("groups: %v, %v", names, err)
		}
		if err := w.DeleteGroup(t.Context(), "billing"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Group(t.Context(), "billing"); !errors.Is(err, weir.ErrUnknownGroup) {
			t.Errorf("a deleted group: %v", err)
		}
	})
}
