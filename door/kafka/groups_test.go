package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
)

// consumer is a group member that notes what it was handed, and commits it.
type consumer struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}
}

// tally is what a group's members were handed, by the records' values, and how often.
type tally struct {
	mu   sync.Mutex // guards seen and owners
	seen map[string]int
	more chan struct{} // receives when seen has grown

	owners   map[int32][]string // who owns a partition now; more than one is a fault
	clash    []string
	produced int // by feed
}

func newTally() *tally {
	return &tally{seen: map[string]int{}, more: make(chan struct{}, 1), owners: map[int32][]string{}}
}

func (y *tally) consume(b *broker, name string, opts ...kgo.Opt) *consumer {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	opts = append([]kgo.Opt{
		kgo.ClientID(name), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.RebalanceTimeout(10 * time.Second),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { y.own(name, m["t"]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { y.disown(name, m["t"]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { y.disown(name, m["t"]) }),
	}, opts...)
	c := &consumer{cl: b.client(opts...), stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			fetches := c.cl.PollRecords(ctx, 10)
			y.count(fetches.Records())
			if err := c.cl.CommitRecords(context.WithoutCancel(ctx), fetches.Records()...); err != nil {
				b.t.Logf("%s commits: %v", name, err) // a rebalance may come between: then the records are handed out again
			}
			c.cl.AllowRebalance()
		}
	}()
	return c
}

// kill ends a member as kill -9 does: it does not leave.
func (c *consumer) kill() {
	c.stop()
	<-c.done
	c.cl.CloseAllowingRebalance()
}

func (y *tally) own(name string, ps []int32) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range ps {
		y.owners[p] = append(y.owners[p], name)
		if len(y.owners[p]) > 1 {
			y.clash = append(y.clash, fmt.Sprintf("partition %d is owned by %v", p, y.owners[p]))
		}
	}
}

func (y *tally) disown(name string, ps []int32) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range ps {
		y.owners[p] = slices.DeleteFunc(y.owners[p], func(n string) bool { return n == name })
	}
}

func (y *tally) count(rs []*kgo.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, r := range rs {
		y.seen[string(r.Value)]++
	}
	select {
	case y.more <- struct{}{}:
	default:
	}
}

// await waits until n different records were seen.
func (y *tally) await(t *testing.T, n int) {
	t.Helper()
	ctx := limit(t)
	for {
		y.mu.Lock()
		seen := len(y.seen)
		y.mu.Unlock()
		if seen >= n {
			return
		}
		select {
		case <-y.more:
		case <-ctx.Done():
			t.Fatalf("saw %d of %d records", seen, n)
		}
	}
}

// produce appends records numbered [from, to) to all partitions in turn.
func produce(t *testing.T, b *broker, from, to int) {
	t.Helper()
	cl := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
	var rs []*kgo.Record
	for i := from; i < to; i++ {
		rs = append(rs, &kgo.Record{Partition: int32(i % 4), Value: []byte(strconv.Itoa(i))})
	}
	if err := cl.ProduceSync(limit(t), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func createTopic(t *testing.T, b *broker) *kadm.Client {
	t.Helper()
	adm := kadm.NewClient(b.client())
	if _, err := adm.CreateTopic(limit(t), 4, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	return adm
}

// G1, G5, G8: whichever way clients share partitions out, nothing is skipped when one of two
// members leaves.
func TestGroupSkipsNothingWhenMembersComeAndGo(t *testing.T) {
	for _, balancer := range []kgo.GroupBalancer{kgo.RangeBalancer(), kgo.RoundRobinBalancer(), kgo.StickyBalancer(), kgo.CooperativeStickyBalancer()} {
		t.Run(balancer.ProtocolName(), func(t *testing.T) {
			b := start(t, kafka.Config{})
			adm := createTopic(t, b)
			y := newTally()
			produce(t, b, 0, 400)
			first := y.consume(b, "first", kgo.Balancers(balancer))
			second := y.consume(b, "second", kgo.Balancers(balancer))
			y.await(t, 400)
			first.stop()
			<-first.done
			first.cl.LeaveGroup()
			produce(t, b, 400, 800)
			y.await(t, 800)
			third := y.consume(b, "third", kgo.Balancers(balancer))
			produce(t, b, 800, 1200)
			y.await(t, 1200)
			second.kill()
			third.kill()
			if len(y.clash) > 0 {
				t.Error(y.clash)
			}
			lag, err := adm.Lag(limit(t), "g")
			if err != nil {
				t.Fatal(err)
			}
			if g := lag["g"]; g.Lag.Total() != 0 || g.Error() != nil {
				t.Errorf("lag %d after all was read (%v)", g.Lag.Total(), g.Error())
			}
		})
	}
}

// A member that dies is noticed by its session, and its partitions go to the other from where it
// had committed.
func TestKilledMemberIsReplaced(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	y := newTally()
	produce(t, b, 0, 400)
	static := kgo.InstanceID("will die") // a static member does not leave when its client is closed: just like a kill
	first := y.consume(b, "first", static)
	second := y.consume(b, "second")
	y.await(t, 400)
	first.kill()
	produce(t, b, 400, 800)
	y.await(t, 800)
	second.kill()
	for value, n := range y.seen {
		if n > 1 {
			t.Logf("record %s was seen %d times", value, n)
		}
	}
}

func TestGroupGoesOnAfterTheBrokerRestarts(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	createTopic(t, b)
	y := newTally()
	c := y.consume(b, "c")
	produce(t, b, 0, 400)
	y.await(t, 400)
	c.kill()
	b.stop()

	b = startOn(t, store, kafka.Config{})
	c = y.consume(b, "c")
	produce(t, b, 400, 800)
	y.await(t, 800)
	c.kill()
	for value, n := range y.seen {
		if n > 1 {
			t.Errorf("record %s was read %d times: its offset had been committed", value, n)
		}
	}
}

// Kafka's admin client takes a group without a protocol type for one whose members only commit
// (isSimpleConsumerGroup), and so do user interfaces.
func TestEmptyGroupKeepsItsProtocolTypeWhenTheBrokerRestarts(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	createTopic(t, b)
	y := newTally()
	c := y.consume(b, "c")
	produce(t, b, 0, 8)
	y.await(t, 8)
	c.stop()
	<-c.done
	c.cl.LeaveGroup()
	b.stop()

	b = startOn(t, store, kafka.Config{})
	adm := kadm.NewClient(b.client())
	described, err := adm.DescribeGroups(limit(t), "g")
	if err != nil {
		t.Fatal(err)
	}
	if g := described["g"]; g.Err != nil || g.State != "Empty" || g.ProtocolType != "consumer" {
		t.Errorf("described %+v", g)
	}
	listed, err := adm.ListGroups(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if g := listed["g"]; g.State != "Empty" || g.ProtocolType != "consumer" {
		t.Errorf("listed %+v", g)
	}
}

func TestGroupAdministration(t *testing.T) {
	b := start(t, kafka.Config{})
	adm := createTopic(t, b)
	y := newTally()
	c := y.consume(b, "c")
	produce(t, b, 0, 8)
	y.await(t, 8)
	ctx := limit(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	listed, err := adm.ListGroups(ctx, "stable")
	must(err)
	if g := listed["g"]; g.State != "Stable" || g.ProtocolType != "consumer" || g.Group != "g" {
		t.Errorf("listed %+v", listed)
	}
	if listed, _ := adm.ListGroups(ctx, "Empty"); len(listed) > 0 {
		t.Errorf("listed as empty: %+v", listed)
	}
	described, err := adm.DescribeGroups(ctx, "g", "nobody")
	must(err)
	g := described["g"]
	if g.State != "Stable" || len(g.Members) != 1 || g.Members[0].ClientID != "c" || g.Members[0].ClientHost != "/127.0.0.1" || len(g.AssignedPartitions()["t"]) != 4 {
		t.Errorf("described %+v", g)
	}
	if err := described["nobody"].Err; !errors.Is(err, kerr.GroupIDNotFound) {
		t.Errorf("a group that is not there: %v", err)
	}

	deleted, err := adm.DeleteGroups(ctx, "g", "nobody")
	must(err)
	if !errors.Is(deleted["g"].Err, kerr.NonEmptyGroup) || !errors.Is(deleted["nobody"].Err, kerr.GroupIDNotFound) {
		t.Errorf("deleted %+v", deleted)
	}
	var which kadm.TopicsSet
	which.Add("t", 0, 9)
	gone, err := adm.DeleteOffsets(ctx, "g", which)
	must(err)
	if err, _ := gone.Lookup("t", 0); !errors.Is(err, kerr.GroupSubscribedToTopic) {
		t.Errorf("offset of a topic that is read: %v", err)
	}
	if err, _ := gone.Lookup("t", 9); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("offset of a partition that is not there: %v", err)
	}

	c.stop()
	<-c.done
	c.cl.LeaveGroup()
	gone, err = adm.DeleteOffsets(ctx, "g", which)
	must(err)
	if err, _ := gone.Lookup("t", 0); err != nil {
		t.Errorf("offset of a group without members: %v", err)
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "t", Partition: 1, At: 77, LeaderEpoch: 0, Metadata: "set by hand"})
	offsets.Add(kadm.Offset{Topic: "t", Partition: 12, At: 1})
	offsets.Add(kadm.Offset{Topic: "not there", Partition: 0, At: 1})
	committed, err := adm.CommitOffsets(ctx, "g", offsets)
	must(err)
	for _, o := range committed.Offsets().Sorted() {
		want := error(kerr.UnknownTopicOrPartition)
		if o.Topic == "t" && o.Partition == 1 {
			want = nil
		}
		if got := committed[o.Topic][o.Partition].Err; !errors.Is(got, want) {
			t.Errorf("commit of %s %d: %v, want %v", o.Topic, o.Partition, got, want)
		}
	}
	fetched, err := adm.FetchOffsets(ctx, "g")
	must(err)
	if o := fetched["t"][1]; o.At != 77 || o.Metadata != "set by hand" || o.LeaderEpoch != 0 {
		t.Errorf("fetched %+v", o)
	}
	if _, there := fetched["t"][0]; there || len(fetched["t"]) != 3 {
		t.Errorf("fetched %v", slices.Sorted(maps.Keys(fetched["t"])))
	}
	deleted, err = adm.DeleteGroups(ctx, "g")
	must(err)
	must(deleted["g"].Err)
	listed, err = adm.ListGroups(ctx)
	must(err)
	if len(listed) > 0 {
		t.Errorf("listed %+v", listed)
	}
}

// Old clients and new ones see one group: each key in each version that is offered.
func TestGroupKeysInEveryVersion(t *testing.T) {
	b := start(t, kafka.Config{})
	adm := createTopic(t, b)
	topics, err := adm.ListTopics(limit(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	id := topics["t"].ID
	for v := range int16(10) {
		name := fmt.Sprintf("v%d", v)
		member, generation := joinAt(t, b, name, v)

		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID, sync.Generation = min(v, 5), name, member, generation
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("all")}}
		if got := ask[*kmsg.SyncGroupResponse](b, sync); got.ErrorCode != 0 || string(got.MemberAssignment) != "all" {
			t.Fatalf("sync in version %d: %+v", sync.Version, got)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.Generation = min(v, 4), name, member, generation
		if got := ask[*kmsg.HeartbeatResponse](b, beat); got.ErrorCode != 0 {
			t.Fatalf("heartbeat in version %d: %+v", beat.Version, got)
		}
		commitAndFetchAt(t, b, name, member, generation, v+1, id)
		describe := &kmsg.DescribeGroupsRequest{Version: min(v, 6), Groups: []string{name}, IncludeAuthorizedOperations: true}
		described := ask[*kmsg.DescribeGroupsResponse](b, describe).Groups[0]
		if described.ErrorCode != 0 || described.State != "Stable" || len(described.Members) != 1 || described.Members[0].MemberID != member {
			t.Fatalf("describe in version %d: %+v", v, described)
		}
		nobody := ask[*kmsg.DescribeGroupsResponse](b, &kmsg.DescribeGroupsRequest{Version: min(v, 6), Groups: []string{"nobody"}}).Groups[0]
		if want := kerr.GroupIDNotFound.Code; nobody.State != "Dead" || v >= 6 && nobody.ErrorCode != want || v < 6 && nobody.ErrorCode != 0 {
			t.Fatalf("describe nobody in version %d: %+v", v, nobody)
		}
		if got := ask[*kmsg.ListGroupsResponse](b, &kmsg.ListGroupsRequest{Version: min(v, 5), TypesFilter: []string{"Classic"}}); len(got.Groups) != int(v)+1 {
			t.Fatalf("list in version %d: %+v", v, got)
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKey, find.CoordinatorKeys = min(v, 6), name, []string{name}
		if got := ask[*kmsg.FindCoordinatorResponse](b, find); got.NodeID != 1 && (len(got.Coordinators) != 1 || got.Coordinators[0].NodeID != 1) {
			t.Fatalf("find in version %d: %+v", v, got)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group, leave.MemberID = min(v, 5), name, member
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member}}
		if got := ask[*kmsg.LeaveGroupResponse](b, leave); got.ErrorCode != 0 || len(got.Members) > 0 && got.Members[0].ErrorCode != 0 {
			t.Fatalf("leave in version %d: %+v", leave.Version, got)
		}
		again := ask[*kmsg.LeaveGroupResponse](b, leave)
		if want := kerr.UnknownMemberID.Code; again.ErrorCode != want && (len(again.Members) != 1 || again.Members[0].ErrorCode != want) {
			t.Fatalf("leave twice in version %d: %+v", leave.Version, again)
		}
		if v > 3 {
			continue
		}
		gone := ask[*kmsg.DeleteGroupsResponse](b, &kmsg.DeleteGroupsRequest{Version: v, Groups: []string{name, "nobody"}})
		if gone.Groups[0].ErrorCode != 0 || gone.Groups[1].ErrorCode != kerr.GroupIDNotFound.Code || (gone.Groups[1].ErrorMessage != nil) != (v == 3) {
			t.Fatalf("delete in version %d: %+v", v, gone)
		}
		joinAt(t, b, name, v) // for the count of groups
	}
}

func joinAt(t *testing.T, b *broker, name string, v int16) (member string, generation int32) {
	t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = v, name, 10_000, 10_000
	join.ProtocolType = "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	got := ask[*kmsg.JoinGroupResponse](b, join)
	if v >= 4 {
		if got.ErrorCode != kerr.MemberIDRequired.Code || got.MemberID == "" {
			t.Fatalf("join in version %d without a member id: %+v", v, got)
		}
		join.MemberID = got.MemberID
		got = ask[*kmsg.JoinGroupResponse](b, join)
	}
	if got.ErrorCode != 0 || got.LeaderID != got.MemberID || got.MemberID == "" || len(got.Members) != 1 || got.Generation != 1 || *got.Protocol != "range" {
		t.Fatalf("join in version %d: %+v", v, got)
	}
	return got.MemberID, got.Generation
}

func commitAndFetchAt(t *testing.T, b *broker, name, member string, generation int32, v int16, id [16]byte) {
	t.Helper()
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.MemberID, commit.Generation = max(v, 2), name, member, generation
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = "t", id
	row := kmsg.NewOffsetCommitRequestTopicPartition()
	row.Partition, row.Offset, row.Metadata = 2, 40+int64(v), kmsg.StringPtr("note")
	other := kmsg.NewOffsetCommitRequestTopic()
	other.Topic, other.TopicID = "not there", [16]byte{1}
	topic.Partitions = append(topic.Partitions, row)
	other.Partitions = topic.Partitions
	commit.Topics = append(commit.Topics, topic, other)
	committed := ask[*kmsg.OffsetCommitResponse](b, commit)
	unknown := kerr.UnknownTopicOrPartition.Code
	if v >= 10 {
		unknown = kerr.UnknownTopicID.Code
	}
	if committed.Topics[0].Partitions[0].ErrorCode != 0 || committed.Topics[1].Partitions[0].ErrorCode != unknown {
		t.Fatalf("commit in version %d: %+v", commit.Version, committed)
	}

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Group = v, name
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{1, 2}}, {Topic: "not there", Partitions: []int32{0}}}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = name
	group.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{1, 2}}, {Topic: "not there", TopicID: [16]byte{1}, Partitions: []int32{0}}}
	fetch.Groups = append(fetch.Groups, group)
	got := ask[*kmsg.OffsetFetchResponse](b, fetch)
	var found []kmsg.OffsetFetchResponseGroupTopicPartition
	for _, t := range got.Topics {
		for _, p := range t.Partitions {
			found = append(found, kmsg.OffsetFetchResponseGroupTopicPartition(p))
		}
	}
	for _, g := range got.Groups {
		for _, t := range g.Topics {
			found = append(found, t.Partitions...)
		}
	}
	if len(found) != 3 || found[0].Offset != -1 || found[1].Offset != 40+int64(v) || *found[1].Metadata != "note" || found[2].Offset != -1 ||
		(found[2].ErrorCode == kerr.UnknownTopicID.Code) != (v >= 10) {
		t.Fatalf("fetch in version %d: %+v", v, got)
	}
	if v < 2 {
		return
	}
	fetch.Topics, fetch.Groups[0].Topics = nil, nil
	all := ask[*kmsg.OffsetFetchResponse](b, fetch)
	if n := len(all.Topics); v < 8 && (n != 1 || all.Topics[0].Partitions[0].Offset != 40+int64(v)) {
		t.Fatalf("fetch all in version %d: %+v", v, all)
	}
	if v >= 8 && (len(all.Groups[0].Topics) != 1 || all.Groups[0].Topics[0].Partitions[0].Offset != 40+int64(v)) {
		t.Fatalf("fetch all in version %d: %+v", v, all)
	}
}

// A client that looks for a coordinator of something else learns that it is not to be had, and does
// not try for ever.
func TestOnlyGroupsAreCoordinated(t *testing.T) {
	b := start(t, kafka.Config{})
	for kind, want := range map[int8]*kerr.Error{1: kerr.ClusterAuthorizationFailed, 2: kerr.InvalidRequest} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorType, find.CoordinatorKeys = 6, kind, []string{"x", "y"}
		got := ask[*kmsg.FindCoordinatorResponse](b, find)
		for _, c := range got.Coordinators {
			if c.ErrorCode != want.Code || c.ErrorMessage == nil || c.NodeID != -1 {
				t.Errorf("coordinator of kind %d: %+v", kind, c)
			}
		}
	}
}

// K17: what is wrong with a request is told by Kafka's code for it, and the group goes on.
func TestBadGroupRequestsGetKafkasCodes(t *testing.T) {
	b := start(t, kafka.Config{})
	createTopic(t, b)
	member, generation := joinAt(t, b, "g", 9)
	sync := &kmsg.SyncGroupRequest{Version: 5, Group: "g", MemberID: member, Generation: generation, ProtocolType: kmsg.StringPtr("consumer"), Protocol: kmsg.StringPtr("range"),
		GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("all")}}}
	if got := ask[*kmsg.SyncGroupResponse](b, sync); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	join := func(spoil func(*kmsg.JoinGroupRequest)) int16 {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.SessionTimeoutMillis, r.ProtocolType = 9, "g", 10_000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0}}}
		spoil(r)
		return ask[*kmsg.JoinGroupResponse](b, r).ErrorCode
	}
	commit := func(spoil func(*kmsg.OffsetCommitRequest)) int16 {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 9, "g", member, generation
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{}}}}
		spoil(r)
		return ask[*kmsg.OffsetCommitResponse](b, r).Topics[0].Partitions[0].ErrorCode
	}
	beat := func(r kmsg.HeartbeatRequest) int16 {
		r.Version = 4
		return ask[*kmsg.HeartbeatResponse](b, &r).ErrorCode
	}
	long, me := kmsg.StringPtr(string(make([]byte, 4097))), kmsg.StringPtr("me")
	for what, c := range map[string]struct {
		got  int16
		want *kerr.Error
	}{
		"no group":                        {join(func(r *kmsg.JoinGroupRequest) { r.Group = "" }), kerr.InvalidGroupID},
		"1 ms of session":                 {join(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 }), kerr.InvalidSessionTimeout},
		"2^31-1 ms of session":            {join(func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1<<31 - 1 }), kerr.InvalidSessionTimeout},
		"an unknown protocol":             {join(func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "mine" }), kerr.InconsistentGroupProtocol},
		"another protocol type":           {join(func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }), kerr.InconsistentGroupProtocol},
		"a member nobody is":              {join(func(r *kmsg.JoinGroupRequest) { r.MemberID = "me" }), kerr.UnknownMemberID},
		"2 MB of metadata":                {join(func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Metadata = make([]byte, 2<<20) }), kerr.MessageTooLarge},
		"a sync without a protocol":       {ask[*kmsg.SyncGroupResponse](b, &kmsg.SyncGroupRequest{Version: 5, Group: "g", MemberID: member, Generation: generation}).ErrorCode, kerr.InconsistentGroupProtocol},
		"a sync of nobody":                {ask[*kmsg.SyncGroupResponse](b, &kmsg.SyncGroupRequest{Version: 3, Group: "g", MemberID: "me", Generation: generation}).ErrorCode, kerr.UnknownMemberID},
		"a heartbeat of another time":     {beat(kmsg.HeartbeatRequest{Group: "g", MemberID: member, Generation: 7}), kerr.IllegalGeneration},
		"a heartbeat of nobody":           {beat(kmsg.HeartbeatRequest{Group: "g", MemberID: "me", Generation: generation}), kerr.UnknownMemberID},
		"a heartbeat of no instance":      {beat(kmsg.HeartbeatRequest{Group: "g", MemberID: member, InstanceID: me, Generation: generation}), kerr.UnknownMemberID},
		"4097 bytes of offset metadata":   {commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = long }), kerr.OffsetMetadataTooLarge},
		"a commit of another time":        {commit(func(r *kmsg.OffsetCommitRequest) { r.Generation = 0 }), kerr.IllegalGeneration},
		"a commit of nobody":              {commit(func(r *kmsg.OffsetCommitRequest) { r.MemberID = "me" }), kerr.UnknownMemberID},
		"a commit of no member":           {commit(func(r *kmsg.OffsetCommitRequest) { r.MemberID, r.Generation = "", -1 }), kerr.UnknownMemberID},
		"a commit to a missing partition": {commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 4 }), kerr.UnknownTopicOrPartition},
	} {
		if c.got != c.want.Code {
			t.Errorf("%s: %v, want %v", what, kerr.ErrorForCode(c.got), c.want)
		}
	}
	if code := beat(kmsg.HeartbeatRequest{Group: "g", MemberID: member, Generation: generation}); code != 0 {
		t.Errorf("the group does not go on: %v", kerr.ErrorForCode(code))
	}
}

// Who waits for a round is told to look for another broker when this one stops, well before the
// wait would end.
func TestJoinEndsWhenTheServerDrains(t *testing.T) {
	b := start(t, kafka.Config{})
	member, _ := joinAt(t, b, "g", 9)
	w := b.dial()
	join := kmsg.NewPtrJoinGroupRequest() // it waits for the member that is there
	join.Version, join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = 3, "g", 60_000, 60_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	w.send(frame(join, 1))
	for { // until the round has begun
		beat := ask[*kmsg.HeartbeatResponse](b, &kmsg.HeartbeatRequest{Version: 3, Group: "g", MemberID: member, Generation: 1})
		if beat.ErrorCode == kerr.RebalanceInProgress.Code {
			break
		}
	}
	go b.stop()
	if got := w.receive(join, 1).(*kmsg.JoinGroupResponse); got.ErrorCode != kerr.CoordinatorNotAvailable.Code && got.ErrorCode != kerr.NotCoordinator.Code {
		t.Errorf("told %v", kerr.ErrorForCode(got.ErrorCode))
	}
}
