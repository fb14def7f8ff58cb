package kafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// awaitGroup waits until a group is stable, has so many members, and is of the consumer protocol or
// of the classic one.
func awaitGroup(t *testing.T, b *broker, members int, consumer bool) {
	t.Helper()
	awaitDescribed(t, b, func(d group.Described) bool {
		return len(d.Members) == members && d.State == group.Stable && d.Consumer == consumer
	})
}

// A group's clients change from the classic to the consumer protocol one after the other, and back:
// at no time has a partition two members, nothing is skipped, and nothing is handled twice, because
// everybody commits before it gives up a partition.
func TestAGroupChangesItsProtocolWhileItReads(t *testing.T) {
	for _, assignor := range []kgo.GroupBalancer{kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(), kgo.CooperativeStickyBalancer()} {
		t.Run(assignor.ProtocolName(), func(t *testing.T) {
			t.Parallel()
			b := start(t, kafka.Config{})
			createTopic(t, b)
			y := newTally()
			more := func() { t.Helper(); y.feed(t, b) }
			classic, next := kgo.Balancers(assignor), kgo.ServerSideBalancer()
			var all []*consumer
			for n := range 3 {
				all = append(all, y.consume(b, fmt.Sprint("classic-", n), classic))
			}
			awaitGroup(t, b, 3, false)
			more()
			for n := range 3 {
				all[n].end()
				all[n] = y.consume(b, fmt.Sprint("consumer-", n), next)
				awaitGroup(t, b, 3, true)
				more()
			}
			for n := range 3 {
				all[n].end()
				all[n] = y.consume(b, fmt.Sprint("back-", n), classic)
				awaitGroup(t, b, 3, n < 2)
				more()
			}
			for _, c := range all {
				c.end()
			}
			y.wantOnce(t)
		})
	}
}

// One group has clients of Kafka's classic and of its consumer protocol, and members of the Go
// library, at two brokers; when only the classic ones are left, it is a classic group.
func TestMembersOfAllKindsShareAGroup(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	createTopic(t, all[0])
	y := newTally()
	more := func() { t.Helper(); y.feed(t, all[0]) }
	leave := y.handle(all[0], "go")
	more()
	classic := y.consume(all[1], "classic", kgo.MaxVersions(kversion.V2_4_0())) // it has never heard of the other protocol
	awaitShares(t, all[0], 2, 2)
	more()
	consumer := y.consume(all[0], "consumer", kgo.ServerSideBalancer())
	awaitGroup(t, all[0], 3, true)
	more()
	d := describeConsumer(all[0], "g")
	kinds := ""
	for _, m := range d.Members {
		kinds += fmt.Sprint(m.MemberType)
	}
	if strings.Count(kinds, "0") != 1 || strings.Count(kinds, "1") != 2 {
		t.Errorf("the members' types are %s, want one of the classic protocol: %+v", kinds, d)
	}
	leave()
	more()
	consumer.end()
	awaitGroup(t, all[0], 1, false)
	more()
	classic.end()
	y.wantOnce(t)
}

// A Go member joins a group of Kafka's classic protocol in a process that does not coordinate it,
// and leaves it as one.
func TestAGoMemberJoinsAGroupOfTheClassicProtocol(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	createTopic(t, all[0])
	y := newTally()
	more := func() { t.Helper(); y.feed(t, all[0]) }
	one, two := y.consume(all[0], "one"), y.consume(all[1], "two")
	awaitGroup(t, all[0], 2, false)
	more()
	for n, b := range all { // one of them coordinates it
		leave := y.handle(b, fmt.Sprint("go-", n))
		awaitGroup(t, b, 3, true)
		more()
		leave()
		awaitGroup(t, b, 2, false)
		more()
	}
	one.end()
	two.end()
	y.wantOnce(t)
}

// The members of an assignor of their own need the assignment that their leader computes.
func TestAGroupOfAnotherAssignorKeepsItsProtocol(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	y := newTally()
	y.consume(b, "classic", kgo.Balancers(renamed{kgo.RangeBalancer()}))
	awaitGroup(t, b, 1, false)
	one := b.member(t, "one")
	got := one.send(one.full(), kerr.GroupIDNotFound)
	if said := text(got.ErrorMessage); !strings.Contains(said, `"mine"`) {
		t.Errorf("it is told %q", said)
	}
	two := b.member(t, "two")
	two.group = "h"
	two.send(two.full(), nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.ProtocolType, join.SessionTimeoutMillis = "h", "three", "consumer", 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "mine", Metadata: kgo.RangeBalancer().JoinGroupMetadata([]string{"t"}, nil, 0)}}
	answer, err := join.RequestWith(limit(t), b.client())
	if err != nil {
		t.Fatal(err)
	}
	if answer.ErrorCode != kerr.InconsistentGroupProtocol.Code {
		t.Errorf("the join is answered %v", kerr.ErrorForCode(answer.ErrorCode))
	}
}

// feed produces a hundred records, and waits until all so far were seen.
func (y *tally) feed(t *testing.T, b *broker) {
	t.Helper()
	produce(t, b, y.produced, y.produced+100)
	y.produced += 100
	y.await(t, y.produced)
}

// wantOnce sees that no partition had two members, and that nothing was handled twice.
func (y *tally) wantOnce(t *testing.T) {
	t.Helper()
	if len(y.clash) > 0 {
		t.Error(y.clash)
	}
	for value, n := range y.seen {
		if n > 1 {
			t.Errorf("record %s was handled %d times, though nobody was killed", value, n)
		}
	}
}

// end ends a member after it has committed what it handled.
func (c *consumer) end() {
	c.stop()
	<-c.done
	c.cl.CloseAllowingRebalance()
}

// renamed is an assignor of a client's own.
type renamed struct{ kgo.GroupBalancer }

func (renamed) ProtocolName() string { return "mine" }
