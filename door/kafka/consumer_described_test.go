package kafka_test

import (
	"fmt"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// wantDescribed sees that a group is described with this state and epoch, and with these members.
func wantDescribed(t *testing.T, b *broker, state string, epoch int32, members ...string) {
	t.Helper()
	partitions := func(a kmsg.Assignment) (all []int32) {
		for _, row := range a.TopicPartitions {
			if topic, err := b.log.Topic(t.Context(), row.Topic); err != nil || row.TopicID != topic.ID {
				t.Errorf("%x is no id of topic %q: %v", row.TopicID, row.Topic, err)
			}
			all = append(all, row.Partitions...)
		}
		return all
	}
	d := describeConsumer(b, "g")
	var rows []string
	for _, m := range d.Members {
		rows = append(rows, fmt.Sprint(m.MemberID, " in ", m.MemberEpoch, " has ", partitions(m.Assignment), " of ", partitions(m.TargetAssignment)))
	}
	if d.State != state || d.Epoch != epoch || d.AssignmentEpoch != epoch || !slices.Equal(rows, members) {
		t.Errorf("it is %s in epoch %d, assigned in epoch %d, with %q; want %s in epoch %d with %q", d.State, d.Epoch, d.AssignmentEpoch, rows, state, epoch, members)
	}
}

// While partitions are handed over, a group is described with what each member has and is to have,
// and with the epoch that each was told.
func TestAGroupIsDescribedAsFarAsItsMembersHaveCome(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	wantDescribed(t, b, "Stable", one.epoch, fmt.Sprint("one in ", one.epoch, " has [0 1 2 3] of [0 1 2 3]"))
	before := one.epoch
	two.join()
	one.send(one.short(), nil)
	kept, given := one.has, slices.DeleteFunc([]int32{0, 1, 2, 3}, func(p int32) bool { return slices.Contains(one.has, p) })
	if two.epoch <= before || len(kept) != 2 {
		t.Fatalf("two joined in epoch %d, one in %d, and one keeps %v", two.epoch, before, kept)
	}
	wantDescribed(t, b, "Reconciling", two.epoch, fmt.Sprint("one in ", before, " has [0 1 2 3] of ", kept), fmt.Sprint("two in ", two.epoch, " has [] of ", given))
	told := two.epoch
	one.send(one.full(kept...), nil)
	wantDescribed(t, b, "Stable", one.epoch, fmt.Sprint("one in ", one.epoch, " has ", kept, " of ", kept), fmt.Sprint("two in ", told, " has ", given, " of ", given))
	two.send(two.short(), nil)
	wantDescribed(t, b, "Stable", one.epoch, fmt.Sprint("one in ", one.epoch, " has ", kept, " of ", kept), fmt.Sprint("two in ", one.epoch, " has ", given, " of ", given))

	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{"g"}
	for asked, want := range map[bool]int32{false: math.MinInt32, true: 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11} { // read, delete, describe, describe configs, alter configs
		req.IncludeAuthorizedOperations = asked
		if got := ask[*kmsg.ConsumerGroupDescribeResponse](b, req).Groups[0].AuthorizedOperations; got != want {
			t.Errorf("asked %v: the client is told of the operations %b, want %b", asked, got, want)
		}
	}
}

// The rack is part of the stored group: heartbeats need not repeat it, and the next broker knows
// it.
func TestAMembersRackIsKeptAndDescribed(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	want := func(rack string) {
		t.Helper()
		var all []string
		for _, m := range describeConsumer(b, "g").Members {
			all = append(all, text(m.RackID))
		}
		if !slices.Equal(all, []string{rack, "null"}) {
			t.Errorf("the racks are %q, want %q, and none for the other member", all, rack)
		}
	}
	req := one.full()
	req.RackID = kmsg.StringPtr("rack-1")
	one.send(req, nil)
	two.join()
	want("rack-1")
	one.settle(2) // these heartbeats do not name it
	want("rack-1")
	b.stop()
	b = startOn(t, store, kafka.Config{})
	one.b = b
	want("rack-1")
	req = one.full(one.has...)
	req.RackID = kmsg.StringPtr("rack-2")
	one.send(req, nil)
	want("rack-2")
}

// As in Kafka, a full group refuses members of both protocols, and those that it has go on.
func TestAFullGroupHasKafkasCode(t *testing.T) {
	b := startGrouped(t, memory.New(), kafka.Config{}, group.Config{MembersMax: 1}, nil, kafka.Listener{Listener: listenHere(t)})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	two.send(two.full(), kerr.GroupMaxSizeReached)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.ProtocolType = 3, "g", 6000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: kgo.RangeBalancer().JoinGroupMetadata([]string{"t"}, nil, 0)}}
	wantCode(t, "classic join", ask[*kmsg.JoinGroupResponse](b, join).ErrorCode, kerr.GroupMaxSizeReached)
	one.settle(4)
	leave := one.short()
	leave.MemberEpoch = -1
	one.send(leave, nil)
	two.join()
}

// awaitCommitted waits until a group has committed offset each in all four partitions.
func awaitCommitted(t *testing.T, b *broker, each int64) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Groups = 8, []kmsg.OffsetFetchRequestGroup{{Group: "g"}} // all of its topics
	for ctx := limit(t); ; {
		var has []int64
		for _, topic := range ask[*kmsg.OffsetFetchResponse](b, req).Groups[0].Topics {
			for _, p := range topic.Partitions {
				has = append(has, p.Offset)
			}
		}
		if slices.Equal(has, []int64{each, each, each, each}) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the group has committed %v, want %d each", has, each)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A broker restarts below a consumer of the new protocol: it goes on as the same member where it
// was. Whoever comes after it begins where it has committed.
func TestAConsumerGoesOnWhereItWasWhenTheBrokerRestarts(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	createTopic(t, b)
	y := newTally()
	one := y.consume(b, "one", kgo.ServerSideBalancer())
	y.feed(t, b)
	awaitCommitted(t, b, 25)
	before := describeConsumer(b, "g")
	b.stop()
	l, err := net.Listen("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	b = startAt(t, store, l, kafka.Config{})
	y.feed(t, b)
	awaitCommitted(t, b, 50)
	if d := describeConsumer(b, "g"); len(d.Members) != 1 || d.Members[0].MemberID != before.Members[0].MemberID {
		t.Errorf("before it was %+v, and is %+v", before, d)
	}
	one.end()
	two := y.consume(b, "two", kgo.ServerSideBalancer())
	y.feed(t, b)
	awaitCommitted(t, b, 75)
	two.end()
	y.wantOnce(t)
}
