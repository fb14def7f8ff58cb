package kafka_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	registry "github.com/weir-log/weir/use/broker"
)

// startBrokers starts brokers on one store, each at an address of its own, and waits until they
// know each other.
func startBrokers(t *testing.T, store eventlog.Store, n int, cfg kafka.Config) (all []*broker) {
	t.Helper()
	for range n {
		l := listenHere(t)
		as := &registry.Config{Host: "here", Addresses: map[string]string{"p": l.Addr().String()}}
		all = append(all, startJoined(t, store, cfg, as, kafka.Listener{Listener: l, Name: "p"}))
	}
	for _, b := range all {
		b.awaitBrokers(n)
	}
	return all
}

func listenHere(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// awaitBrokers waits until the broker knows so many.
func (b *broker) awaitBrokers(n int) {
	b.t.Helper()
	late := time.After(20 * time.Second)
	for len(b.brokers.View().Brokers()) != n {
		select {
		case <-late:
			b.t.Fatalf("broker %d knows %v, want %d", b.brokers.View().Self(), b.brokers.View().Brokers(), n)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A client that has created a topic knows its id, and may use it at a broker that has not heard of
// the topic yet.
func TestABrokerKnowsTheIDOfATopicThatAnotherCreated(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	for n := range 100 {
		topic, err := all[1].log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: fmt.Sprint("t", n), Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation, req.Version = "g", -1, 10 // the first version with ids
		row, at := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
		row.TopicID, row.Topic = topic.ID, topic.Name
		row.Partitions = append(row.Partitions, at)
		req.Topics = append(req.Topics, row)
		got := ask[*kmsg.OffsetCommitResponse](all[0], req)
		wantCode(t, topic.Name, got.Topics[0].Partitions[0].ErrorCode, nil)
	}
}

// Clients ask each broker for its groups: each lists those that it coordinates, so that none is
// listed twice.
func TestABrokerListsTheGroupsThatItCoordinates(t *testing.T) {
	all := startBrokers(t, memory.New(), 2, kafka.Config{})
	admin := kadm.NewClient(all[0].client())
	var groups []string
	for n := range 20 {
		name := fmt.Sprintf("group-%02d", n)
		groups = append(groups, name)
		offsets := make(kadm.Offsets)
		offsets.Add(kadm.Offset{Topic: "orders", At: 1})
		if n == 0 {
			if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.CommitAllOffsets(t.Context(), name, offsets); err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	for _, b := range all {
		got := ask[*kmsg.ListGroupsResponse](b, kmsg.NewPtrListGroupsRequest())
		if len(got.Groups) == 0 {
			t.Errorf("broker %d lists no group", b.brokers.View().Self())
		}
		for _, g := range got.Groups {
			listed = append(listed, g.Group)
			if at := b.brokers.View().Coordinator(g.Group).ID; at != b.brokers.View().Self() {
				t.Errorf("broker %d lists %s, which broker %d coordinates", b.brokers.View().Self(), g.Group, at)
			}
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, groups) {
		t.Errorf("the brokers list %v, want %v", listed, groups)
	}
}

// With --any-replication-factor tools may give a partition several brokers that live, each once;
// without it, one.
func TestPartitionsMoveToSeveralBrokersIfAnyReplicationFactorIsAllowed(t *testing.T) {
	for _, any := range []bool{false, true} {
		all := startBrokers(t, memory.New(), 2, kafka.Config{AnyReplicationFactor: any})
		all[0].createTopic("t", 1, nil)
		for _, c := range []struct {
			replicas []int32
			works    bool
		}{{[]int32{1}, true}, {[]int32{2}, true}, {[]int32{2, 1}, any}, {[]int32{1, 1}, false}, {[]int32{1, 3}, false}, {[]int32{1, 2, 3}, false}, {[]int32{}, false}} {
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			rt, rp := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			rt.Topic, rp.Replicas = "t", c.replicas
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := ask[*kmsg.AlterPartitionAssignmentsResponse](all[0], req).Topics[0].Partitions[0]
			if p.ErrorCode == 0 != c.works || !c.works && p.ErrorCode != kerr.InvalidReplicaAssignment.Code {
				t.Errorf("any replication factor %v, replicas %v: %d %s", any, c.replicas, p.ErrorCode, text(p.ErrorMessage))
			}
		}
	}
}

// balance listens at one address, and passes connections to servers in turn, until the test ends.
func balance(t *testing.T, l net.Listener, servers ...*atomic.Pointer[broker]) {
	t.Helper()
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for n := 0; ; n++ {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			to := servers[n%len(servers)].Load()
			running.Go(func() {
				defer nc.Close()
				server, err := net.Dial("tcp", to.addr)
				if err != nil {
					return
				}
				defer server.Close()
				running.Go(func() { defer server.Close(); _, _ = io.Copy(server, nc) })
				_, _ = io.Copy(nc, server)
			})
		}
	})
}

// Two processes behind one address of a load balancer: clients are told of one broker, and groups
// read everything.
func TestGroupsWorkBehindOneAddress(t *testing.T) {
	store, front := memory.New(), listenHere(t)
	var servers []*atomic.Pointer[broker]
	for n := range 2 {
		as := &registry.Config{Host: "here", Addresses: map[string]string{"p": front.Addr().String()}}
		b := startJoined(t, store, kafka.Config{}, as, kafka.Listener{Listener: listenHere(t), Name: "p", Advertised: front.Addr().String()})
		servers = append(servers, new(atomic.Pointer[broker]))
		servers[n].Store(b)
	}
	first, last := servers[0].Load(), servers[1].Load()
	for _, b := range []*broker{first, last} {
		b.awaitBrokers(1)
	}
	first.said.await(t, "another process that lives is advertised", 1)
	if first.brokers.Healthy() == nil || last.brokers.Healthy() != nil {
		t.Errorf("the first says %v, the last %v", first.brokers.Healthy(), last.brokers.Healthy())
	}
	balance(t, front, servers...)
	client := func(options ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append([]kgo.Opt{kgo.AlwaysRetryEOF(), kgo.SeedBrokers(front.Addr().String()), kgo.AllowAutoTopicCreation(), kgo.MetadataMinAge(50 * time.Millisecond), kgo.HeartbeatInterval(100 * time.Millisecond)}, options...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	const topics, each = 4, 50
	producer := client()
	for n := range topics * each {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: fmt.Sprint("topic-", n%topics), Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for n := range topics {
		running.Go(func() {
			var got atomic.Int64
			var members sync.WaitGroup
			reading, done := context.WithCancel(ctx)
			for range 2 {
				c := client(kgo.ConsumerGroup(fmt.Sprint("group-", n)), kgo.ConsumeTopics(fmt.Sprint("topic-", n)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
					kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
				members.Go(func() {
					for reading.Err() == nil {
						if got.Add(int64(c.PollFetches(reading).NumRecords())) >= each {
							done()
						}
					}
				})
			}
			members.Wait()
			done()
			if got.Load() < each {
				t.Errorf("group %d got %d of %d records", n, got.Load(), each)
			}
		})
	}
	running.Wait()
	// Whichever process the connection reaches, the groups are listed once.
	for range 4 {
		listed, err := kadm.NewClient(client()).ListGroups(t.Context())
		if err != nil || strings.Join(listed.Groups(), " ") != "group-0 group-1 group-2 group-3" {
			t.Errorf("listed are %v (%v)", listed.Groups(), err)
		}
	}
}

// A reader is sent to the broker in its rack (KIP-392), which may have the number 0.
func TestAReaderIsSentToTheBrokerOfItsRackWhateverItsNumber(t *testing.T) {
	store, racks := memory.New(), []string{"east", "west"}
	var all []*broker
	for i, rack := range racks {
		l, id := listenHere(t), int32(i)
		as := &registry.Config{ID: &id, Host: "here", Rack: rack, Addresses: map[string]string{"p": l.Addr().String()}}
		all = append(all, startJoined(t, store, kafka.Config{}, as, kafka.Listener{Listener: l, Name: "p"}))
	}
	for _, b := range all {
		b.awaitBrokers(len(racks))
	}
	all[0].createTopic("t", 1, nil)
	for i, rack := range racks {
		req := fetchRequest("t", 0, 0)
		req.Rack, req.MaxWaitMillis = rack, 10
		if got := ask[*kmsg.FetchResponse](all[1-i], req).Topics[0].Partitions[0]; got.PreferredReadReplica != int32(i) {
			t.Errorf("in rack %s: %+v", rack, got)
		}
	}
}
