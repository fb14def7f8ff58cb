package kafka_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

func TestOffsetsTopicAppearsWithTheFirstGroupAndIsInternal(t *testing.T) {
	const offsets = "__consumer_offsets"
	b := start(t, kafka.Config{})
	listed := func() kadm.TopicDetails {
		// A fresh client each time: they cache what they list.
		topics, err := kadm.NewClient(b.client()).ListTopicsWithInternal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return topics
	}
	if listed().Has(offsets) {
		t.Fatalf("%s is there before any group", offsets)
	}
	cl := b.client()
	for range 2 { // the second finds it
		if c := kadm.NewClient(cl).FindGroupCoordinators(t.Context(), "g"); c.Error() != nil {
			t.Fatal(c.Error())
		}
	}
	if topic := listed()[offsets]; topic.Err != nil || !topic.IsInternal || len(topic.Partitions) != 1 {
		t.Errorf("metadata: %+v", topic)
	}
	in := kmsg.NewPtrDescribeTopicPartitionsRequest()
	in.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: offsets}}
	in.ResponsePartitionLimit = 10
	out, err := in.RequestWith(t.Context(), cl)
	if err != nil || !out.Topics[0].IsInternal {
		t.Errorf("DescribeTopicPartitions: %+v, %v", out, err)
	}
	err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: offsets, Value: []byte("v")}).FirstErr()
	if !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("a client's record: %v", err)
	}
}

func TestClientsDoNotWriteWhereQueuesKeepDelayedMessages(t *testing.T) {
	const later = "__weir_later"
	b := start(t, kafka.Config{})
	b.createTopic(later, 1, nil)
	err := b.client().ProduceSync(t.Context(), &kgo.Record{Topic: later, Value: []byte("v")}).FirstErr()
	if !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("a client's record: %v", err)
	}
}
