package kafka_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// A request of many names, or of many partitions, costs a few store calls and not one for each.
func TestManyNamesOfOneRequestCostAFewStoreCalls(t *testing.T) {
	const names, few = 1000, 10
	store := &countingLists{Store: memory.New()}
	b := startOn(t, store, kafka.Config{NoAutoCreate: true})
	b.createTopic("a.topic", names, nil)
	b.mustProduce("a.topic", 3, sequenced(t, b.newProducerID(), 0, 0, value("v")))

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.ValidateOnly = 5, true
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Version = 4
	alter := kmsg.NewPtrAlterConfigsRequest()
	alter.Version, alter.ValidateOnly = 2, true
	describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for n := range names {
		name := fmt.Sprint("unknown.", n)
		c := kmsg.NewCreateTopicsRequestTopic()
		c.Topic, c.NumPartitions, c.ReplicationFactor = name, 1, 1
		if n == names-1 {
			c.Topic = "a_topic"
		}
		create.Topics = append(create.Topics, c)
		m := kmsg.NewMetadataRequestTopic()
		m.Topic = &name
		metadata.Topics = append(metadata.Topics, m)
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		configs.Resources = append(configs.Resources, r)
		ar := kmsg.NewAlterConfigsRequestResource()
		ar.ResourceType, ar.ResourceName = kmsg.ConfigResourceTypeTopic, name
		alter.Resources = append(alter.Resources, ar)
		d := kmsg.NewDescribeTopicPartitionsRequestTopic()
		d.Topic = name
		describe.Topics = append(describe.Topics, d)
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	pt := kmsg.NewDescribeProducersRequestTopic()
	pt.Topic = "a.topic"
	for n := range int32(names) {
		pt.Partitions = append(pt.Partitions, n)
	}
	producers.Topics = append(producers.Topics, pt)

	check := func(what string) {
		t.Helper()
		if n := store.lists.Swap(0); n > few {
			t.Errorf("%s of %d names makes %d store calls", what, names, n)
		}
	}
	store.lists.Store(0)
	created := ask[*kmsg.CreateTopicsResponse](b, create).Topics
	check("CreateTopics")
	wantCode(t, "a new topic", created[0].ErrorCode, nil)
	wantCode(t, "one that collides", created[names-1].ErrorCode, kerr.InvalidTopicException)
	wantCode(t, "Metadata", ask[*kmsg.MetadataResponse](b, metadata).Topics[names-1].ErrorCode, kerr.UnknownTopicOrPartition)
	check("Metadata")
	wantCode(t, "DescribeConfigs", ask[*kmsg.DescribeConfigsResponse](b, configs).Resources[names-1].ErrorCode, kerr.UnknownTopicOrPartition)
	check("DescribeConfigs")
	wantCode(t, "AlterConfigs", ask[*kmsg.AlterConfigsResponse](b, alter).Resources[names-1].ErrorCode, kerr.UnknownTopicOrPartition)
	check("AlterConfigs")
	wantCode(t, "DescribeTopicPartitions", ask[*kmsg.DescribeTopicPartitionsResponse](b, describe).Topics[names-1].ErrorCode, kerr.UnknownTopicOrPartition)
	check("DescribeTopicPartitions")
	described := ask[*kmsg.DescribeProducersResponse](b, producers).Topics[0].Partitions
	check("DescribeProducers")
	for n, p := range described {
		want := 0
		if n == 3 {
			want = 1
		}
		if p.Partition != int32(n) || len(p.ActiveProducers) != want || p.ErrorCode != 0 {
			t.Fatalf("DescribeProducers says of partition %d: %+v", n, p)
		}
	}
}

// A new name is compared with all topics by one look into a table, and that is made once for a
// state of the topics.
func TestACollisionIsFoundWithoutAWalkOverAllTopics(t *testing.T) {
	topics := []eventlog.Topic{{Name: "a.b"}, {Name: "plain"}}
	find := kafka.Collides()
	for _, c := range []struct{ name, with string }{{"a_b", "a.b"}, {"a.c", ""}, {"plain", ""}} {
		if got, is := find(topics, c.name); got != c.with || is != (c.with != "") {
			t.Errorf("%q collides with %q, %v", c.name, got, is)
		}
	}
	if got, is := find([]eventlog.Topic{{Name: "a_c"}, {Name: "d"}}, "a.c"); got != "a_c" || !is {
		t.Errorf("after a change of the topics a.c collides with %q, %v", got, is)
	}
	many := make([]eventlog.Topic, 5000)
	for i := range many {
		many[i].Name = fmt.Sprint("t.", i)
	}
	find(many, "t_x")
	if n := testing.AllocsPerRun(100, func() { find(many, "t_x") }); n != 0 {
		t.Errorf("each new name makes %v allocations", n)
	}
}
