package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func TestMetadataTellsOfTheOneBroker(t *testing.T) {
	b := start(t, kafka.Config{NodeID: new(int32(7))})
	b.createTopic("t", 2, nil)
	for version := int16(0); version <= 13; version++ {
		req := metadataRequest("t")
		req.Version = version
		req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
		resp := ask[*kmsg.MetadataResponse](b, req)
		host, port, _ := net.SplitHostPort(b.addr)
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 7 || resp.Brokers[0].Host != host || strconv.Itoa(int(resp.Brokers[0].Port)) != port {
			t.Errorf("version %d: brokers %+v, expected 7 at %s", version, resp.Brokers, b.addr)
		}
		if version >= 2 && len(text(resp.ClusterID)) != 22 || version >= 1 && resp.ControllerID != 7 {
			t.Errorf("version %d: cluster id %q, controller %d", version, text(resp.ClusterID), resp.ControllerID)
		}
		topic := resp.Topics[0]
		if topic.ErrorCode != 0 || text(topic.Topic) != "t" || len(topic.Partitions) != 2 || version >= 10 && topic.TopicID == [16]byte{} {
			t.Errorf("version %d: topic %+v", version, topic)
		}
		for i, p := range topic.Partitions {
			if p.ErrorCode != 0 || p.Partition != int32(i) || p.Leader != 7 || !slices.Equal(p.Replicas, []int32{7}) || !slices.Equal(p.ISR, []int32{7}) || version >= 7 && p.LeaderEpoch != 0 {
				t.Errorf("version %d: partition %+v", version, p)
			}
		}
		if version >= 8 && topic.AuthorizedOperations != 0b1101_1111_1000 {
			t.Errorf("version %d: operations %b", version, topic.AuthorizedOperations)
		}
	}
}

func TestMetadataFindsTopics(t *testing.T) {
	b := start(t, kafka.Config{Partitions: 3})
	id := b.createTopic("t", 1, nil).ID
	all := func(version int16, topics []kmsg.MetadataRequestTopic) int {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = version, topics
		return len(ask[*kmsg.MetadataResponse](b, req).Topics)
	}
	none := []kmsg.MetadataRequestTopic{}
	if all(0, none) != 1 || all(1, nil) != 1 || all(12, nil) != 1 || all(1, none) != 0 || all(12, none) != 0 {
		t.Error("empty means all in version 0 and none later; null means all")
	}

	byID := func(id [16]byte) kmsg.MetadataResponseTopic {
		req := metadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.MetadataResponse](b, req).Topics[0]
	}
	if topic := byID(id); topic.ErrorCode != 0 || text(topic.Topic) != "t" {
		t.Errorf("by id: %+v", topic)
	}
	withName := metadataRequest("") // as Kafka's own client sends it
	withName.Topics[0].TopicID = id
	if topic := ask[*kmsg.MetadataResponse](b, withName).Topics[0]; topic.ErrorCode != 0 || text(topic.Topic) != "t" {
		t.Errorf("by id with an empty name: %+v", topic)
	}
	many := metadataRequest("t", "t", "none", "t", "none")
	many.AllowAutoTopicCreation = false
	if n := len(ask[*kmsg.MetadataResponse](b, many).Topics); n != 2 {
		t.Errorf("two topics that are mentioned five times are answered %d times", n)
	}
	wantCode(t, "an unknown id", byID([16]byte{1, 2, 3}).ErrorCode, kerr.UnknownTopicID)

	closed := metadataRequest("new")
	closed.AllowAutoTopicCreation = false
	wantCode(t, "a client that does not want topics created", ask[*kmsg.MetadataResponse](b, closed).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
	if topic := ask[*kmsg.MetadataResponse](b, metadataRequest("new")).Topics[0]; topic.ErrorCode != 0 || len(topic.Partitions) != 3 {
		t.Errorf("created: %+v", topic)
	}

	off := start(t, kafka.Config{NoAutoCreate: true})
	wantCode(t, "a broker that does not create topics", ask[*kmsg.MetadataResponse](off, metadataRequest("new")).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

func TestTheAdvertisedAddressIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := startListening(t, memory.New(), kafka.Config{}, kafka.Listener{Listener: l, Advertised: "broker.example.org:9092"})
	if broker := ask[*kmsg.MetadataResponse](b, metadataRequest()).Brokers[0]; broker.Host != "broker.example.org" || broker.Port != 9092 {
		t.Errorf("metadata tells %+v", broker)
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.EndpointType = 2, 1
	if broker := ask[*kmsg.DescribeClusterResponse](b, req).Brokers[0]; broker.Host != "broker.example.org" || broker.Port != 9092 || broker.NodeID != 1 {
		t.Errorf("DescribeCluster tells %+v", broker)
	}
	req.EndpointType = 2
	wantCode(t, "controllers", ask[*kmsg.DescribeClusterResponse](b, req).ErrorCode, kerr.MismatchedEndpointType)
	req.EndpointType = 3
	wantCode(t, "something else", ask[*kmsg.DescribeClusterResponse](b, req).ErrorCode, kerr.UnsupportedEndpointType)
}

func TestTheClusterIDStaysWithTheStore(t *testing.T) {
	store := memory.New()
	ids := make(map[string]bool)
	for range 3 {
		b := startOn(t, store, kafka.Config{})
		ids[text(ask[*kmsg.MetadataResponse](b, metadataRequest()).ClusterID)] = true
		b.stop()
	}
	if len(ids) != 1 {
		t.Errorf("three starts on one store had the cluster ids %v", ids)
	}
}

func TestCreateTopicsAnswersEach(t *testing.T) {
	b := start(t, kafka.Config{})
	req := createRequest("a", 2, 1)
	add := func(name string, config ...string) {
		more := createRequest(name, 1, 1).Topics[0]
		for i := 0; i < len(config); i += 2 {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			if c.Name = config[i]; config[i+1] != "null" {
				c.Value = &config[i+1]
			}
			more.Configs = append(more.Configs, c)
		}
		req.Topics = append(req.Topics, more)
	}
	add("twice")
	add("twice")
	add("set", "retention.ms", "1000", "compression.type", "zstd")
	add("unknown", "no.such.setting", "1")
	add("bad", "retention.ms", "soon")
	add("null", "retention.ms", "null")
	want := []*kerr.Error{nil, kerr.InvalidRequest, nil, kerr.InvalidConfig, kerr.InvalidConfig, kerr.InvalidConfig}
	req.ValidateOnly = true
	for _, validateOnly := range []bool{true, false} {
		req.ValidateOnly = validateOnly
		resp := ask[*kmsg.CreateTopicsResponse](b, req)
		for i, topic := range resp.Topics {
			wantCode(t, fmt.Sprintf("%s, validate only %v", topic.Topic, validateOnly), topic.ErrorCode, want[i])
		}
		if set := resp.Topics[2]; set.NumPartitions != 1 || set.ReplicationFactor != 1 || len(set.Configs) < 6 {
			t.Errorf("created %+v", set)
		}
		if validateOnly && len(b.log.Topics()) > 0 {
			t.Error("topics were created by a request to validate only")
		}
	}
	if topic, err := b.log.Topic(t.Context(), "set"); err != nil || topic.CompressionType() != "zstd" {
		t.Errorf("set: %+v, %v", topic, err)
	}
	wantCode(t, "again", b.create(createRequest("a", 1, 1)).ErrorCode, kerr.TopicAlreadyExists)
}

func TestDeleteTopicsByNameAndID(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("a", 1, nil)
	id := b.createTopic("b", 1, nil).ID
	b.createTopic("c", 1, nil)
	ptr := kmsg.StringPtr
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		{Topic: ptr("a")}, {TopicID: id}, {Topic: ptr("none")}, {TopicID: [16]byte{9}}, {}, {Topic: ptr("c"), TopicID: [16]byte{1}}, {Topic: ptr("d")}, {Topic: ptr("d")},
	}
	want := []*kerr.Error{nil, nil, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest}
	for i, topic := range ask[*kmsg.DeleteTopicsResponse](b, req).Topics {
		wantCode(t, fmt.Sprintf("topic %d", i), topic.ErrorCode, want[i])
		if i == 1 && text(topic.Topic) != "b" || i == 0 && topic.TopicID == [16]byte{} {
			t.Errorf("topic %d is told as %+v", i, topic)
		}
	}
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.Version, old.TopicNames = 3, []string{"c"}
	wantCode(t, "version 3", ask[*kmsg.DeleteTopicsResponse](b, old).Topics[0].ErrorCode, nil)
	if n := len(b.log.Topics()); n != 0 {
		t.Errorf("%d topics are left", n)
	}
	wantCode(t, "produce to a deleted topic", b.produce("a", 0, sealed(t, batch.None, value("v"))).ErrorCode, kerr.UnknownTopicOrPartition)
}

func TestADeletionByIDLeavesTheNamesakeAlone(t *testing.T) {
	faked(t, kafka.Config{}, func(t *testing.T, b *broker, s *troubled, w *wire) {
		old := b.createTopic("t", 1, nil)
		other := otherProcess(t, s)
		if err := other.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		made, err := other.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Publish(t.Context(), made.Partitions[0], value("acknowledged")); err != nil {
			t.Fatal(err)
		}
		if known, err := b.log.TopicByID(old.ID); err != nil {
			t.Fatalf("the broker has heard of the deletion, and the test shows nothing: %v, %v", known, err)
		}
		byID := kmsg.NewPtrDeleteTopicsRequest()
		byID.Version, byID.Topics = 6, []kmsg.DeleteTopicsRequestTopic{{TopicID: old.ID}}
		w.send(frame(byID, 1))
		wantCode(t, "deletion by the old id", w.receive(byID, 1).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, kerr.UnknownTopicID)
		if now, err := other.TopicNow(t.Context(), "t"); err != nil || now.ID != made.ID {
			t.Fatalf("the topic of the same name: %v, %v", now, err)
		}
		if got, err := other.Bounds(t.Context(), made.Partitions[0]); err != nil || got[0].Err != nil || got[0].Bounds.Next != 1 {
			t.Errorf("its records: %+v, %v", got, err)
		}
		byName := kmsg.NewPtrDeleteTopicsRequest()
		byName.Version, byName.Topics = 6, []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("t")}}
		w.send(frame(byName, 2))
		if d := w.receive(byName, 2).(*kmsg.DeleteTopicsResponse).Topics[0]; d.ErrorCode != 0 || d.TopicID != made.ID {
			t.Errorf("deletion by name: code %d, id %v; the topic of that name was %v", d.ErrorCode, eventlog.TopicID(d.TopicID), made.ID)
		}
	})
}

// otherProcess is a second log on the same store.
func otherProcess(t *testing.T, store eventlog.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return log
}

func TestATopicCreatedAgainIsAnother(t *testing.T) {
	b := start(t, kafka.Config{})
	old := b.createTopic("t", 1, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("old")))
	if err := b.log.DeleteTopic(context.Background(), "t"); err != nil {
		t.Fatal(err)
	}
	b.createTopic("t", 1, nil)
	if p := b.fetch("t", 0, 0); p.ErrorCode != 0 || len(p.RecordBatches) > 0 || p.HighWatermark != 0 {
		t.Errorf("the new topic holds %+v", p)
	}
	byID := fetchRequest("", 0, 0)
	byID.Version, byID.Topics[0].TopicID = 18, old.ID
	wantCode(t, "fetch by the old id", ask[*kmsg.FetchResponse](b, byID).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
	produce := produceRequest("", 0, sealed(t, batch.None, value("v")))
	produce.Version, produce.Topics[0].TopicID = 13, old.ID
	wantCode(t, "produce by the old id", ask[*kmsg.ProduceResponse](b, produce).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
}

func TestCreatePartitionsOnlyAdds(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 3, nil)
	for _, c := range []struct {
		topic        string
		count        int32
		assignment   [][]int32
		validateOnly bool
		want         *kerr.Error
	}{
		{"t", 3, nil, false, kerr.InvalidPartitions},
		{"t", 0, nil, false, kerr.InvalidPartitions},
		{"t", -1, nil, false, kerr.InvalidPartitions},
		{"t", math.MaxInt32, nil, true, kerr.InvalidPartitions},
		{"none", 5, nil, false, kerr.UnknownTopicOrPartition},
		{"t", 5, [][]int32{{1}}, false, kerr.InvalidReplicaAssignment},
		{"t", 4, [][]int32{{2}}, false, kerr.InvalidReplicaAssignment},
		{"t", 4, [][]int32{{1}}, true, nil},
		{"t", 4, [][]int32{{1}}, false, nil},
		{"t", 4, nil, false, kerr.InvalidPartitions},
		{"t", 6, nil, false, nil},
	} {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version, req.ValidateOnly = 3, c.validateOnly
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = c.topic, c.count
		for _, replicas := range c.assignment {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = replicas
			rt.Assignment = append(rt.Assignment, a)
		}
		req.Topics = append(req.Topics, rt)
		wantCode(t, fmt.Sprintf("%+v", c), ask[*kmsg.CreatePartitionsResponse](b, req).Topics[0].ErrorCode, c.want)
	}
	if end := b.end("t", 5); end != 0 {
		t.Errorf("the sixth partition ends at %d", end)
	}
}

func TestDescribeTopicPartitionsGoesPageByPage(t *testing.T) {
	b := start(t, kafka.Config{})
	for _, name := range []string{"a", "b", "c"} {
		b.createTopic(name, 5, nil)
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 4
	var seen []string
	for pages := 1; ; pages++ {
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](b, req)
		n := 0
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				seen = append(seen, fmt.Sprint(text(topic.Topic), p.Partition))
				n++
			}
		}
		if n > 4 {
			t.Errorf("a page of %d", n)
		}
		if resp.NextCursor == nil {
			if pages != 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		req.Cursor = &c
	}
	if got := strings.Join(seen, " "); got != "a0 a1 a2 a3 a4 b0 b1 b2 b3 b4 c0 c1 c2 c3 c4" {
		t.Errorf("pages show %s", got)
	}
	some := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, name := range []string{"none", "b", "b", "a/b"} {
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = name
		some.Topics = append(some.Topics, rt)
	}
	want := map[string]*kerr.Error{"a/b": kerr.InvalidTopicException, "b": nil, "none": kerr.UnknownTopicOrPartition}
	topics := ask[*kmsg.DescribeTopicPartitionsResponse](b, some).Topics
	if len(topics) != 3 {
		t.Errorf("%d topics for three names", len(topics))
	}
	for _, topic := range topics {
		wantCode(t, text(topic.Topic), topic.ErrorCode, want[text(topic.Topic)])
	}
}

func TestDescribeLogDirsTellsSizes(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	b.createTopic("other", 1, nil)
	raw := sealed(t, batch.None, value("v"))
	size := int64(len(raw))
	b.mustProduce("t", 1, raw)
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	dirs := ask[*kmsg.DescribeLogDirsResponse](b, req).Dirs
	if len(dirs) != 1 || len(dirs[0].Topics) != 2 || dirs[0].Topics[1].Partitions[0].Size != 0 || dirs[0].Topics[1].Partitions[1].Size != size {
		t.Errorf("all: %+v, expected %d bytes", dirs, size)
	}
	rt := kmsg.NewDescribeLogDirsRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{1, 9}
	none := kmsg.NewDescribeLogDirsRequestTopic()
	none.Topic = "none"
	req.Topics = append(req.Topics, rt, none)
	dirs = ask[*kmsg.DescribeLogDirsResponse](b, req).Dirs
	if len(dirs[0].Topics) != 1 || len(dirs[0].Topics[0].Partitions) != 1 || dirs[0].Topics[0].Partitions[0].Size != size {
		t.Errorf("one: %+v", dirs)
	}
}

func TestAReplicationFactorAboveOneIsTheOperatorsChoice(t *testing.T) {
	for _, taken := range []bool{false, true} {
		b := start(t, kafka.Config{AnyReplicationFactor: taken})
		for factor, want := range map[int16]*kerr.Error{3: kerr.InvalidReplicationFactor, 0: kerr.InvalidReplicationFactor, -2: kerr.InvalidReplicationFactor, 1: nil, -1: nil} {
			if taken && factor > 1 {
				want = nil
			}
			made := b.create(createRequest(fmt.Sprintf("t%d", factor), 1, factor))
			wantCode(t, fmt.Sprintf("factor %d, taken %v", factor, taken), made.ErrorCode, want)
			if want == nil && made.ReplicationFactor != 1 {
				t.Errorf("factor %d is shown as %d", factor, made.ReplicationFactor)
			}
		}
		elsewhere := createRequest("elsewhere", -1, -1)
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Replicas = []int32{1, 2}
		elsewhere.Topics[0].ReplicaAssignment = append(elsewhere.Topics[0].ReplicaAssignment, a)
		wantCode(t, "replicas elsewhere", b.create(elsewhere).ErrorCode, kerr.InvalidReplicaAssignment)
	}
}
