package kafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// codes lists the error codes of an answer, in order.
func codes(resp kmsg.Response) (all []int16) {
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.FetchResponse:
		all = append(all, r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.ListOffsetsResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.MetadataResponse:
		for _, t := range r.Topics {
			all = append(all, t.ErrorCode)
		}
	case *kmsg.CreateTopicsResponse:
		for _, t := range r.Topics {
			all = append(all, t.ErrorCode)
		}
	case *kmsg.DeleteTopicsResponse:
		for _, t := range r.Topics {
			all = append(all, t.ErrorCode)
		}
	case *kmsg.CreatePartitionsResponse:
		for _, t := range r.Topics {
			all = append(all, t.ErrorCode)
		}
	case *kmsg.DeleteRecordsResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.OffsetForLeaderEpochResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				all = append(all, p.ErrorCode)
			}
		}
	case *kmsg.DescribeConfigsResponse:
		for _, r := range r.Resources {
			all = append(all, r.ErrorCode)
		}
	default:
		panic(fmt.Sprintf("codes of %T", resp))
	}
	return all
}

// franz-go's own stand-in for a Kafka cluster is a second opinion: the same requests get the same
// codes.
func TestCodesAreThoseOfAnotherBroker(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"), kfake.DefaultNumPartitions(1))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	b := start(t, kafka.Config{NodeID: new(int32(0))})
	b.createTopic("t", 2, nil)
	other := &broker{t: t, addr: fake.ListenAddrs()[0]}

	type change func(kmsg.Request)
	request := func(r kmsg.Request, changes ...change) kmsg.Request {
		for _, c := range changes {
			c(r)
		}
		return r
	}
	good := func() []byte { return sealed(t, batch.None, value("a"), value("b")) }
	acks := func(n int16) change { return func(r kmsg.Request) { r.(*kmsg.ProduceRequest).Acks = n } }
	session := func(id, epoch int32) change {
		return func(r kmsg.Request) {
			f := r.(*kmsg.FetchRequest)
			f.SessionID, f.SessionEpoch = id, epoch
		}
	}
	epoch := func(n int32) change {
		return func(r kmsg.Request) {
			switch r := r.(type) {
			case *kmsg.FetchRequest:
				r.Topics[0].Partitions[0].CurrentLeaderEpoch = n
			case *kmsg.ListOffsetsRequest:
				r.Topics[0].Partitions[0].CurrentLeaderEpoch = n
			}
		}
	}
	deleting := func(partition int32, before int64) kmsg.Request {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = partition, before
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	}
	more := func(topic string, count int32) kmsg.Request {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version = 3
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, count
		req.Topics = append(req.Topics, rt)
		return req
	}
	describe := func(kind kmsg.ConfigResourceType, name string) kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kind, name
		req.Resources = append(req.Resources, rr)
		return req
	}
	twice := createRequest("twice", 1, 1)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	id := func(r kmsg.Request) {
		r.(*kmsg.FetchRequest).Version, r.(*kmsg.FetchRequest).Topics[0].TopicID = 16, [16]byte{1}
	}

	list := func(topic string, partition int32) kmsg.Request {
		req := listRequest(topic, partition, -1)
		req.Version = 9
		return req
	}

	// Where the other broker is not like Apache Kafka, what Kafka answers stands here.
	kafkas := map[string][]int16{
		"metadata of a bad name": {kerr.InvalidTopicException.Code}, // it creates topics of any name
		"create with a bad name": {kerr.InvalidTopicException.Code},
		"as many partitions":     {kerr.InvalidPartitions.Code},
	}
	for _, c := range []struct {
		name string
		req  kmsg.Request
	}{
		{"produce", request(produceRequest("t", 0, good()))},
		{"produce to an unknown topic", request(produceRequest("none", 0, good()))},
		{"produce to an unknown partition", request(produceRequest("t", 2, good()))},
		{"produce to partition -1", request(produceRequest("t", -1, good()))},
		{"produce with acks 2", request(produceRequest("t", 0, good()), acks(2))},
		{"produce rubbish", request(produceRequest("t", 0, make([]byte, 80)))},
		{"fetch", request(fetchRequest("t", 0, 0))},
		{"fetch at the end", request(fetchRequest("t", 0, 2))},
		{"fetch beyond the end", request(fetchRequest("t", 0, 3))},
		{"fetch at -1", request(fetchRequest("t", 0, -1))},
		{"fetch from an unknown topic", request(fetchRequest("none", 0, 0))},
		{"fetch from an unknown partition", request(fetchRequest("t", 7, 0))},
		{"fetch from an unknown id", request(fetchRequest("t", 0, 0), id)},
		{"fetch in an unknown session", request(fetchRequest("t", 0, 0), session(77, 3))},
		{"fetch at a future leader epoch", request(fetchRequest("t", 0, 0), epoch(9))},
		{"list", list("t", 0)},
		{"list from an unknown topic", list("none", 0)},
		{"list from an unknown partition", list("t", 4)},
		{"list at a future leader epoch", request(list("t", 0), epoch(9))},
		{"metadata of a bad name", metadataRequest("a b")},
		{"create", createRequest("made", 1, 1)},
		{"create again", createRequest("made", 1, 1)},
		{"create with 0 partitions", createRequest("zero", 0, 1)},
		{"create with a bad name", createRequest("a/b", 1, 1)},
		{"create with 3 replicas", createRequest("three", 1, 3)},
		{"create twice at once", twice},
		{"more partitions", more("made", 3)},
		{"fewer partitions", more("made", 2)},
		{"as many partitions", more("made", 3)},
		{"more of an unknown topic", more("none", 3)},
		{"delete records", deleting(0, 1)},
		{"delete beyond the end", deleting(0, 9)},
		{"delete of an unknown partition", deleting(9, 0)},
		{"delete all records", deleting(0, -1)},
		{"configs of a topic", describe(kmsg.ConfigResourceTypeTopic, "t")},
		{"configs of an unknown topic", describe(kmsg.ConfigResourceTypeTopic, "none")},
	} {
		ours, theirs := codes(ask[kmsg.Response](b, c.req)), codes(ask[kmsg.Response](other, c.req))
		if code, differs := kafkas[c.name]; differs {
			theirs = code
		}
		if !slices.Equal(ours, theirs) {
			var say []error
			for _, code := range theirs {
				say = append(say, kerr.ErrorForCode(code))
			}
			t.Errorf("%s: we answer %v, the other %v %v", c.name, ours, theirs, say)
		}
	}
}
