package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/group"
)

// handle makes a Go member in the broker's process. The function that it returns makes it leave.
func (y *tally) handle(b *broker, name string) (leave func()) {
	b.t.Helper()
	d := deliver.Delivery{Log: b.log, Groups: b.groups, Logger: slog.New(slog.NewTextHandler(b.said, nil))}
	c, err := d.Join(b.t.Context(), deliver.Subscription{
		Group: "g", Topics: []string{"t"}, Name: name, CommitEvery: time.Millisecond,
		Handle: func(_ context.Context, from *deliver.Partition, events []deliver.Event) error {
			n := []int32{from.Number()}
			y.own(name, n) // nobody else may have it meanwhile
			defer y.disown(name, n)
			var rs []*kgo.Record
			for _, e := range events {
				rs = append(rs, &kgo.Record{Value: e.Value})
			}
			y.count(rs)
			return nil
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	c.Start(b.t.Context())
	return func() {
		b.t.Helper()
		if err := c.Close(limit(b.t)); err != nil {
			b.t.Error(err)
		}
	}
}

// A group has members of Kafka's consumer protocol and of the Go library at the same time, at two
// brokers. Whoever comes or goes, of whichever kind, each partition is one member's, and nothing is
// skipped.
func TestKafkaAndGoMembersShareAGroup(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	createTopic(t, all[0])
	y := newTally()
	more := func() { t.Helper(); y.feed(t, all[y.produced/100%2]) }
	next := kgo.ServerSideBalancer()
	first := y.consume(all[0], "kafka-1", next)
	more()
	leaveGo := y.handle(all[0], "go-1")
	more()
	second := y.consume(all[1], "kafka-2", next)
	leaveOther := y.handle(all[1], "go-2")
	more()
	awaitShares(t, all[0], 4, 1)
	if d := describeConsumer(all[0], "g"); len(d.Members) != 4 || d.Members[0].MemberType != 1 {
		t.Errorf("described %+v", d)
	}
	first.cl.CloseAllowingRebalance()
	first.stop()
	more()
	leaveGo()
	more()
	awaitShares(t, all[1], 2, 2)
	second.cl.CloseAllowingRebalance()
	second.stop()
	more()
	third := y.consume(all[1], "kafka-3", next)
	more()
	leaveOther()
	more()
	third.cl.CloseAllowingRebalance()
	y.wantOnce(t)
}

// awaitShares waits until a group has so many members, which have so many partitions each.
func awaitShares(t *testing.T, b *broker, members, each int) {
	t.Helper()
	awaitDescribed(t, b, func(d group.Described) bool {
		fits := len(d.Members) == members && d.State == group.Stable
		for _, m := range d.Members {
			n := 0
			for _, share := range m.Has {
				n += len(share.Partitions)
			}
			fits = fits && n == each
		}
		return fits
	})
}

// awaitDescribed waits until a group is as it should be.
func awaitDescribed(t *testing.T, b *broker, fits func(group.Described) bool) {
	t.Helper()
	for ctx := limit(t); ; {
		d, err := b.groups.Describe(ctx, "g")
		switch {
		case err != nil && !errors.Is(err, group.ErrNotFound):
			t.Fatal(err)
		case fits(d):
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the group is %+v", d)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A weir that knows no members of the consumer protocol would take them for dead.
func TestMembersOfAnOlderWeirKeepConsumersAway(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	_, err := b.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{
		{Key: group.StateKey("g"), Version: 1, Value: []byte(`{"generation":1,"protocol_type":"weir","protocol":"weir","members":[{"id":"old","client_id":"","client_host":"","session_ms":60000,"topics":["t"]}]}`)},
		{Key: "group/member/g/old", Version: 1, Value: []byte(`{"topics":["t"],"session_ms":60000}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	one := b.member(t, "one")
	got := one.send(one.full(), kerr.GroupIDNotFound)
	if said := text(got.ErrorMessage); !strings.Contains(said, "older weir") {
		t.Errorf("it is told %q", said)
	}
}
