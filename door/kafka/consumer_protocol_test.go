package kafka_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
)

// consumerMember is a member of the consumer protocol (KIP-848) that a test plays.
type consumerMember struct {
	t        *testing.T
	b        *broker
	group    string
	id       string
	instance *string
	epoch    int32
	has      []int32 // partitions of the one topic, as it was told last
	topic    [16]byte
}

func (b *broker) member(t *testing.T, id string) *consumerMember {
	t.Helper()
	m := &consumerMember{t: t, b: b, group: "g", id: id}
	if topic, err := b.log.Topic(t.Context(), "t"); err == nil {
		m.topic = topic.ID
	}
	return m
}

// full is a heartbeat with everything, for topic t unless change says otherwise.
func (m *consumerMember) full(owned ...int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := m.short()
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 10_000, []string{"t"}
	req.InstanceID = m.instance
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(owned) > 0 {
		row := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		row.TopicID, row.Partitions = m.topic, owned
		req.Topics = append(req.Topics, row)
	}
	return req
}

// short is a heartbeat that changes nothing.
func (m *consumerMember) short() *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, m.group, m.id, m.epoch, -1
	return req
}

// send sends a heartbeat, and notes what the member is told.
func (m *consumerMember) send(req *kmsg.ConsumerGroupHeartbeatRequest, want *kerr.Error) *kmsg.ConsumerGroupHeartbeatResponse {
	m.t.Helper()
	got := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.b, req)
	wantCode(m.t, "heartbeat of "+m.id, got.ErrorCode, want)
	if got.ErrorCode != 0 && (got.ErrorMessage == nil || *got.ErrorMessage == "") {
		m.t.Errorf("heartbeat of %s: no text with %v", m.id, kerr.ErrorForCode(got.ErrorCode))
	}
	if got.ErrorCode == 0 {
		m.epoch = got.MemberEpoch
		if got.Assignment != nil {
			m.has = nil
			for _, row := range got.Assignment.Topics {
				m.has = append(m.has, row.Partitions...)
			}
		}
	}
	return got
}

func (m *consumerMember) join() *kmsg.ConsumerGroupHeartbeatResponse {
	m.t.Helper()
	m.epoch = 0
	return m.send(m.full(), nil)
}

// settle sends heartbeats that say what the member has until it is told of so many partitions.
func (m *consumerMember) settle(partitions int) {
	m.t.Helper()
	for late := time.Now().Add(20 * time.Second); ; {
		m.send(m.full(m.has...), nil)
		if len(m.has) == partitions {
			m.send(m.full(m.has...), nil)
			return
		}
		if time.Now().After(late) {
			m.t.Fatalf("%s has %v, want %d partitions", m.id, m.has, partitions)
		}
	}
}

func (m *consumerMember) hasNow(want ...int32) {
	m.t.Helper()
	if slices.Sort(m.has); !slices.Equal(m.has, want) {
		m.t.Errorf("%s has %v, want %v", m.id, m.has, want)
	}
}

func describeConsumer(b *broker, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{group}
	return ask[*kmsg.ConsumerGroupDescribeResponse](b, req).Groups[0]
}

func TestAConsumerOfTheNewProtocolReadsWhatWasProduced(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	produce(t, b, 0, 100)
	y := newTally()
	c := y.consume(b, "one", kgo.ServerSideBalancer())
	y.await(t, 100)
	if d := describeConsumer(b, "g"); len(d.Members) != 1 || d.Members[0].ClientID != "one" {
		t.Errorf("it did not join with the new protocol: %+v", d)
	}
	c.cl.CloseAllowingRebalance()
	if d := describeConsumer(b, "g"); len(d.Members) != 0 {
		t.Errorf("after it left there are %+v", d.Members)
	}
}

// A partition is never told to a member while another one has it.
func TestAPartitionIsGivenUpBeforeAnotherMemberGetsIt(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	one.hasNow(0, 1, 2, 3)
	before := one.epoch
	two.join()
	two.hasNow()
	one.send(one.short(), nil)
	if len(one.has) != 2 || one.epoch != before {
		t.Errorf("one has %v at epoch %d, want two partitions at epoch %d", one.has, one.epoch, before)
	}
	if d := describeConsumer(b, "g"); d.State != "Reconciling" {
		t.Errorf("the group is %s", d.State)
	}
	two.send(two.short(), nil)
	two.hasNow() // one has not said that it gave anything up
	one.send(one.full(0, 1, 2, 3), nil)
	two.send(two.short(), nil)
	two.hasNow() // and now it said that it has not
	one.send(one.full(one.has...), nil)
	if one.epoch <= before {
		t.Errorf("one has given up two partitions, and still has epoch %d", one.epoch)
	}
	two.send(two.short(), nil)
	both := append(slices.Clone(one.has), two.has...)
	if slices.Sort(both); !slices.Equal(both, []int32{0, 1, 2, 3}) {
		t.Errorf("one has %v, two has %v", one.has, two.has)
	}
	if d := describeConsumer(b, "g"); d.State != "Stable" || d.AssignorName != "uniform" {
		t.Errorf("the group is %+v", d)
	}
	leave := two.short()
	leave.MemberEpoch = -1
	if got := two.send(leave, nil); got.MemberEpoch != -1 {
		t.Errorf("leaving is answered with %+v", got)
	}
	one.settle(4)
}

func TestHeartbeatsOfTheNewProtocolGetKafkasCodes(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one := b.member(t, "one")
	one.epoch = 7
	one.send(one.short(), kerr.UnknownMemberID)
	one.join()

	for name, c := range map[string]struct {
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		"no group":             {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, kerr.InvalidRequest},
		"no member":            {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, kerr.InvalidRequest},
		"no time-out":          {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		"no topics":            {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, kerr.InvalidRequest},
		"no partitions":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		"an epoch that is not": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }, kerr.InvalidRequest},
		"to be back, unnamed":  {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }, kerr.InvalidRequest},
		"empty instance":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new(string) }, kerr.InvalidRequest},
		"empty rack":           {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = new(string) }, kerr.InvalidRequest},
		"another assignor":     {func(r *kmsg.ConsumerGroupHeartbeatRequest) { s := "best"; r.ServerAssignor = &s }, kerr.UnsupportedAssignor},
		"bad pattern":          {func(r *kmsg.ConsumerGroupHeartbeatRequest) { s := "("; r.SubscribedTopicRegex = &s }, kerr.InvalidRegularExpression},
		"newer epoch":          {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = one.epoch + 1 }, kerr.FencedMemberEpoch},
		"unknown member":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "who", 1 }, kerr.UnknownMemberID},
		"unknown to leave":     {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "who", -1 }, kerr.UnknownMemberID},
	} {
		t.Run(name, func(t *testing.T) {
			m := b.member(t, "one")
			req := m.full()
			c.change(req)
			m.send(req, c.want)
		})
	}
	joinAt := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	joinAt.Version, joinAt.Group, joinAt.RebalanceTimeoutMillis = 0, "v0", 1000
	joinAt.SubscribedTopicNames, joinAt.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	got := ask[*kmsg.ConsumerGroupHeartbeatResponse](b, joinAt)
	if got.ErrorCode != 0 || got.MemberID == nil || *got.MemberID == "" {
		t.Errorf("version 0: a member without an id gets %+v", got)
	}
}

// The answer with a new epoch may be lost: the member says again what it has, at the epoch before.
func TestAMemberWhoseAnswerWasLostGoesOn(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	two.join()
	one.send(one.short(), nil)
	kept := slices.Clone(one.has)
	lost := *one
	lost.send(lost.full(kept...), nil)
	if lost.epoch == one.epoch {
		t.Fatal("the epoch stayed")
	}
	one.send(one.short(), kerr.FencedMemberEpoch) // it does not say what it has
	one.send(one.full(0, 1, 2, 3), kerr.FencedMemberEpoch)
	one.send(one.full(kept...), nil)
	if one.epoch != lost.epoch {
		t.Errorf("epoch %d, want %d", one.epoch, lost.epoch)
	}
	one.epoch = 0 // it may always join again as itself, and is told all that it has
	one.join()
	if len(one.has) != 2 {
		t.Errorf("it has %v", one.has)
	}
}

func TestAStaticMemberGetsItsPartitionsBack(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	name := "desk-1"
	one, two := b.member(t, "one"), b.member(t, "two")
	one.instance = &name
	one.join()
	two.join()
	one.settle(2)
	two.settle(2)
	had := slices.Clone(one.has)

	again := b.member(t, "one-again")
	again.instance = &name
	again.send(again.full(), kerr.UnreleasedInstanceID)
	away := one.short()
	away.MemberEpoch, away.InstanceID = -2, &name
	one.send(away, nil)
	two.send(two.full(two.has...), nil)
	if len(two.has) != 2 {
		t.Errorf("two got %v while one was away", two.has)
	}
	again.join()
	if !slices.Equal(again.has, had) {
		t.Errorf("it has %v, and had %v", again.has, had)
	}
	late := one.short()
	late.MemberEpoch, late.InstanceID = 2, &name
	one.send(late, kerr.FencedInstanceID)
}

func TestAMemberThatDoesNotGiveUpAPartitionIsEvicted(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	req := one.full()
	req.RebalanceTimeoutMillis = 100
	one.send(req, nil)
	two.join()
	one.send(one.short(), nil)
	two.settle(4)
	one.send(one.short(), kerr.UnknownMemberID)
}

func TestOffsetsAreJudgedByTheMemberEpoch(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	version := int16(9)
	commit := func(m *consumerMember, epoch, partition int32, want *kerr.Error) {
		t.Helper()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.MemberID, req.Generation = version, "g", m.id, epoch
		row, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
		row.Topic, p.Partition, p.Offset = "t", partition, 5
		row.Partitions = append(row.Partitions, p)
		req.Topics = append(req.Topics, row)
		got := ask[*kmsg.OffsetCommitResponse](b, req)
		wantCode(t, "commit of "+m.id, got.Topics[0].Partitions[0].ErrorCode, want)
	}
	fetch := func(m *consumerMember, epoch int32, want *kerr.Error) kmsg.OffsetFetchResponseGroup {
		t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = 9
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = "g", &m.id, epoch
		req.Groups = append(req.Groups, g)
		got := ask[*kmsg.OffsetFetchResponse](b, req).Groups[0]
		wantCode(t, "fetch of "+m.id, got.ErrorCode, want)
		return got
	}
	one.join()
	commit(one, one.epoch, 3, nil)
	commit(one, one.epoch+1, 3, kerr.StaleMemberEpoch)
	version = 8 // its generation is none of an epoch: ConsumerGroup.validateOffsetCommit
	commit(one, one.epoch, 3, kerr.UnsupportedVersion)
	commit(b.member(t, "who"), 1, 3, kerr.UnknownMemberID)
	version = 9
	commit(b.member(t, "who"), 1, 3, kerr.UnknownMemberID)
	commit(b.member(t, ""), -1, 3, kerr.UnknownMemberID)
	if all := fetch(one, one.epoch, nil).Topics; len(all) != 1 || all[0].Topic != "t" || len(all[0].Partitions) != 1 || all[0].Partitions[0].Partition != 3 || all[0].Partitions[0].Offset != 5 {
		t.Errorf("it has committed offset 5 of partition 3 of t, and fetches %+v", all)
	}
	fetch(one, one.epoch+1, kerr.StaleMemberEpoch)
	fetch(b.member(t, "who"), 1, kerr.UnknownMemberID)
	fetch(b.member(t, ""), -1, kerr.UnknownMemberID)
	fetch(one, -1, kerr.StaleMemberEpoch)

	two.join()
	one.send(one.short(), nil)
	all := []int32{0, 1, 2, 3}
	lost := all[slices.IndexFunc(all, func(p int32) bool { return !slices.Contains(one.has, p) })]
	commit(one, one.epoch, lost, nil) // until it has given it up
	one.send(one.full(one.has...), nil)
	two.send(two.short(), nil)
	commit(one, one.epoch, lost, kerr.StaleMemberEpoch)
	commit(one, one.epoch-1, one.has[0], nil) // it has had it since
	commit(two, two.epoch, lost, nil)
	commit(two, two.epoch-1, lost, kerr.StaleMemberEpoch)
}

// A member that is to give up partitions gets no others before it has: with its epoch it could not
// commit offsets of them.
func TestNewPartitionsComeAfterOldOnesWereGivenUp(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	assignor := "range"
	join := func(id string) *consumerMember {
		m := b.member(t, id)
		req := m.full()
		req.ServerAssignor = &assignor
		m.send(req, nil)
		return m
	}
	one, two := join("b"), join("c")
	one.settle(2)
	two.settle(2)
	one.hasNow(0, 1)
	two.hasNow(2, 3)
	first := join("a") // the blocks are 0 and 1, 2, and 3 now
	two.send(two.short(), nil)
	two.send(two.full(two.has...), nil) // 2 is free, and b's
	before := one.epoch
	one.send(one.short(), nil)
	if one.hasNow(); one.epoch != before {
		t.Errorf("it has epoch %d, want %d until it has given up 0 and 1", one.epoch, before)
	}
	one.send(one.full(), nil)
	if one.hasNow(2); one.epoch <= before {
		t.Errorf("it has given up 0 and 1, and still has epoch %d", one.epoch)
	}
	first.settle(2)
	first.hasNow(0, 1)
	two.hasNow(3)
}

// A heartbeat that was late on its way names nothing that came after it. That is not given up.
func TestALateHeartbeatGivesUpNothingThatCameAfterIt(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	two.join()
	one.settle(2)
	two.settle(2)
	had, late := slices.Clone(one.has), one.full()
	leave := two.short()
	leave.MemberEpoch = -1
	two.send(leave, nil)
	one.send(one.short(), nil)
	if len(one.has) != 4 {
		t.Fatalf("it has %v", one.has)
	}
	epoch := one.epoch
	two.join()
	one.send(one.short(), nil)
	if len(one.has) != 2 || one.epoch != epoch {
		t.Fatalf("it has %v at epoch %d", one.has, one.epoch)
	}
	if got := ask[*kmsg.ConsumerGroupHeartbeatResponse](b, late); got.ErrorCode != 0 {
		t.Fatalf("the late heartbeat: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	two.send(two.short(), nil)
	for _, p := range two.has {
		if !slices.Contains(had, p) {
			t.Errorf("the other member has %v; the first one had %v when it sent the late heartbeat, and has not given up what came after", two.has, had)
		}
	}
	one.send(one.full(one.has...), nil)
	two.settle(2)
}

// A member does not name what it was told of by an answer that was lost. When it goes on with the
// epoch before, it has not that answer, and gives nothing up that it does not have.
func TestAMemberWasNotToldWhatALostAnswerSaid(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	two.join()
	one.settle(2)
	two.settle(2)
	had, epoch := slices.Sorted(slices.Values(one.has)), one.epoch
	leave := two.short()
	leave.MemberEpoch = -1
	two.send(leave, nil)
	one.send(one.short(), nil)
	if len(one.has) != 4 {
		t.Fatalf("it has %v", one.has)
	}
	one.has, one.epoch = had, epoch // the answer was lost
	two.join()
	one.send(one.full(had...), nil)
	one.hasNow(had...)
	one.send(one.short(), nil) // Java and franz-go name partitions again when these change
	one.hasNow(had...)
	two.settle(2)
	one.send(one.short(), nil)
	if two.epoch != one.epoch {
		t.Errorf("one has epoch %d, two has %d", one.epoch, two.epoch)
	}
}

func TestAPatternIsMatchedAgainstWholeNames(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one := b.member(t, "one")
	pattern := "t|u.*"
	req := one.full()
	req.SubscribedTopicNames, req.SubscribedTopicRegex = nil, &pattern
	one.send(req, nil)
	one.hasNow(0, 1, 2, 3)
	d := describeConsumer(b, "g")
	if m := d.Members[0]; !slices.Equal(m.SubscribedTopics, []string{"t"}) || m.SubscribedTopicRegex == nil || *m.SubscribedTopicRegex != pattern {
		t.Errorf("it is described as %+v", m)
	}
	part := "[st]x?" // "t", and not a part of a name
	req = one.full(one.has...)
	req.SubscribedTopicNames, req.SubscribedTopicRegex = nil, &part
	one.send(req, nil)
	one.hasNow(0, 1, 2, 3)
	none := "T"
	req = one.full(one.has...)
	req.SubscribedTopicNames, req.SubscribedTopicRegex = nil, &none
	one.send(req, nil)
	one.hasNow()
}

func TestRangeGivesBlocksOfEachTopic(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	var all []*consumerMember
	assignor := "range"
	for _, id := range []string{"a", "b"} {
		m := b.member(t, id)
		req := m.full()
		req.ServerAssignor = &assignor
		m.send(req, nil)
		all = append(all, m)
	}
	all[0].settle(2)
	all[1].settle(2)
	all[0].hasNow(0, 1)
	all[1].hasNow(2, 3)
	if d := describeConsumer(b, "g"); d.AssignorName != "range" {
		t.Errorf("the assignor is %s", d.AssignorName)
	}
}

func TestAGroupHasTheTypeOfItsMembers(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one := b.member(t, "one")
	one.join()
	list := func(types ...string) (found []string) {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version, req.TypesFilter = 5, types
		for _, g := range ask[*kmsg.ListGroupsResponse](b, req).Groups {
			found = append(found, g.Group+" "+g.GroupType+" "+g.GroupState)
		}
		return found
	}
	for _, types := range [][]string{nil, {"consumer"}, {"Consumer", "share"}} {
		if got := strings.Join(list(types...), ","); got != "g consumer Stable" {
			t.Errorf("types %v: %q", types, got)
		}
	}
	if got := list("classic"); len(got) != 0 {
		t.Errorf("classic groups: %q", got)
	}
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Version, describe.Groups = 6, []string{"g"}
	wantCode(t, "DescribeGroups", ask[*kmsg.DescribeGroupsResponse](b, describe).Groups[0].ErrorCode, kerr.GroupIDNotFound)
	wantCode(t, "of no group", describeConsumer(b, "h").ErrorCode, kerr.GroupIDNotFound)

	// Members that divide the partitions by themselves are refused.
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.ProtocolType = 3, "g", 6000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "mine"
	join.Protocols = append(join.Protocols, p)
	wantCode(t, "classic join", ask[*kmsg.JoinGroupResponse](b, join).ErrorCode, kerr.InconsistentGroupProtocol)
}

// The broker that a member asks next adopts it, and all others of its group.
func TestMembersGoOnAtAnotherBroker(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	createTopic(t, b)
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	two.join()
	one.settle(2)
	two.settle(2)
	epoch, had := one.epoch, slices.Clone(one.has)
	b.stop()
	b = startOn(t, store, kafka.Config{})
	one.b, two.b = b, b
	one.send(one.short(), nil)
	if slices.Sort(one.has); !slices.Equal(one.has, had) || one.epoch < epoch {
		t.Errorf("it has %v at epoch %d, and had %v at %d", one.has, one.epoch, had, epoch)
	}
	two.send(two.short(), nil)
	if len(two.has) != 2 {
		t.Errorf("two has %v", two.has)
	}
}

func TestAMemberMayReadOtherTopics(t *testing.T) {
	b := start(t, kafka.Config{})
	adm := createTopic(t, b)
	if _, err := adm.CreateTopic(limit(t), 2, 1, nil, "u"); err != nil {
		t.Fatal(err)
	}
	one, two := b.member(t, "one"), b.member(t, "two")
	one.join()
	req := one.full(one.has...)
	req.SubscribedTopicNames = []string{"u"}
	one.send(req, nil)
	one.hasNow() // it is to give up t first
	d := describeConsumer(b, "g")
	if len(d.Members) != 1 || !slices.Equal(d.Members[0].SubscribedTopics, []string{"u"}) {
		t.Errorf("described %+v", d)
	}
	two.join() // it reads t, which one still has
	two.hasNow()
	one.send(one.short(), nil)
	if len(one.has) > 0 {
		t.Errorf("it has %v, and has not given up t", one.has)
	}
	given := one.full()
	given.SubscribedTopicNames = []string{"u"}
	one.send(given, nil)
	if len(one.has) != 2 {
		t.Errorf("it has %v of u", one.has)
	}
	two.settle(4)
}

func TestThreeMembersShareEvenly(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	var all []*consumerMember
	for _, id := range []string{"a", "b", "c"} {
		m := b.member(t, id)
		m.join()
		all = append(all, m)
	}
	owner := map[int32]string{}
	for late := time.Now().Add(20 * time.Second); len(owner) < 4; {
		clear(owner)
		for _, m := range all {
			m.send(m.full(m.has...), nil)
			for _, p := range m.has {
				if other, taken := owner[p]; taken {
					t.Fatalf("%s and %s have partition %d", other, m.id, p)
				}
				owner[p] = m.id
			}
		}
		if time.Now().After(late) {
			t.Fatalf("after 20 s: %v", owner)
		}
	}
	for _, m := range all {
		if n := len(m.has); n < 1 || n > 2 {
			t.Errorf("%s has %v", m.id, m.has)
		}
	}
}

// An epoch that the group does not have fences the member; it joins again as itself.
func TestAFencedMemberJoinsAgain(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	one := b.member(t, "one")
	one.join()
	one.epoch += 5
	one.send(one.full(one.has...), kerr.FencedMemberEpoch)
	one.join()
	one.hasNow(0, 1, 2, 3)
}

// A broker that does not coordinate a group tells no member of it where it stands: it would take
// the group's members over.
func TestAMembersOffsetsAreFetchedFromItsCoordinator(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	all[0].createTopic("t", 1, nil)
	at := slices.IndexFunc(all, func(b *broker) bool { return b.brokers.View().Coordinator("g").ID == b.brokers.View().Self() })
	m := all[at].member(t, "one")
	m.join()
	generation := m.epoch
	other := all[1-at]
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = "g", &m.id, m.epoch
	req.Groups = append(req.Groups, g)
	got := ask[*kmsg.OffsetFetchResponse](other, req)
	wantCode(t, "fetch at the other broker", got.Groups[0].ErrorCode, kerr.NotCoordinator)
	if m.send(m.short(), nil); m.epoch != generation {
		t.Errorf("the member is in epoch %d, was in %d", m.epoch, generation)
	}
}
