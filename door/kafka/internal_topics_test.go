package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
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

func TestClientsReadACategoryAndDoNotAppendToIt(t *testing.T) {
	b := start(t, kafka.Config{})
	if _, err := stream.New(b.log, stream.Config{}).CreateCategory(t.Context(), stream.Spec{Name: "order", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]kgo.Opt{nil, {kgo.DisableIdempotentWrite()}} {
		err := b.client(options...).ProduceSync(t.Context(), &kgo.Record{Topic: "order", Value: []byte("v")}).FirstErr()
		if !errors.Is(err, kerr.InvalidTopicException) {
			t.Errorf("a client's record: %v", err)
		}
	}
	wantCode(t, "delete its records", b.deleteRecords("order", 0, 0).ErrorCode, kerr.InvalidTopicException)
	ends, err := kadm.NewClient(b.client()).ListEndOffsets(t.Context(), "order")
	if at, ok := ends.Lookup("order", 0); err != nil || !ok || at.Offset != 0 {
		t.Errorf("the category ends at %+v, %v", at, err)
	}
}

func TestNoClientCompactsAQueuesTopicOrDeletesItsRecords(t *testing.T) {
	b := start(t, kafka.Config{})
	qs := queue.New(b.log, publish.New(b.log, publish.Config{}), queue.Config{})
	if _, err := qs.Create(t.Context(), queue.Spec{Name: "mail", Settings: queue.Settings{KeepDone: true}}); err != nil {
		t.Fatal(err)
	}
	admin, policy := kadm.NewClient(b.client()), "compact"
	for _, topic := range []string{"mail", "mail.dlt", "mail.done"} {
		wantCode(t, "delete records of "+topic, b.deleteRecords(topic, 0, 0).ErrorCode, kerr.InvalidTopicException)
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}
		altered, err := admin.AlterTopicConfigs(t.Context(), change, topic)
		if err != nil || !errors.Is(altered[0].Err, kerr.InvalidConfig) {
			t.Errorf("IncrementalAlterConfigs of %s: %+v, %v", topic, altered, err)
		}
		altered, err = admin.AlterTopicConfigsState(t.Context(), change, topic)
		if err != nil || !errors.Is(altered[0].Err, kerr.InvalidConfig) {
			t.Errorf("AlterConfigs of %s: %+v, %v", topic, altered, err)
		}
	}
}

// Kafka refuses DeleteRecords where cleanup.policy does not delete
// (Partition.deleteRecordsOnLeader).
func TestRecordsOfATopicThatIsOnlyCompactedAreNotDeleted(t *testing.T) {
	b := start(t, kafka.Config{})
	for policy, want := range map[string]*kerr.Error{"compact": kerr.PolicyViolation, "compact,delete": nil, "delete": nil} {
		topic := b.createTopic(strings.ReplaceAll(policy, ",", "-"), 1, map[string]string{"cleanup.policy": policy})
		if _, err := b.log.Publish(t.Context(), topic.Partitions[0], batch.Record{Key: []byte("k"), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, policy, b.deleteRecords(topic.Name, 0, 1).ErrorCode, want)
		first := eventlog.Offset(1)
		if want != nil {
			first = 0
		}
		if held, err := b.log.Bounds(t.Context(), topic.Partitions[0]); err != nil || held[0].Bounds.First != first {
			t.Errorf("%s: %+v, %v", policy, held, err)
		}
	}
}

func TestClientsDoNotTouchWhatQueuesKeepDelayedMessagesIn(t *testing.T) {
	const later = "__weir_later"
	b := start(t, kafka.Config{})
	client := b.client()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, later); !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("a client creates the topic: %v", err)
	}
	topic := b.createTopic(later, 1, nil)
	_, err := b.log.Publish(t.Context(), topic.Partitions[0], batch.Record{Value: []byte("a delayed message")})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, kerr.InvalidTopicException) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a client's record", client.ProduceSync(t.Context(), &kgo.Record{Topic: later, Value: []byte("v")}).FirstErr())
	trimmed, err := admin.DeleteRecords(t.Context(), kadm.Offsets{later: {0: {Topic: later, At: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	refused("deleting records", trimmed[later][0].Err)
	second := "1000"
	altered, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &second}}, later)
	if err != nil {
		t.Fatal(err)
	}
	refused("a shorter retention", altered[0].Err)
	grown, err := admin.CreatePartitions(t.Context(), 1, later)
	if err != nil {
		t.Fatal(err)
	}
	refused("more partitions", grown[later].Err)
	deleted, err := admin.DeleteTopics(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	refused("deleting the topic", deleted[later].Err)
	now, err := b.log.TopicNow(t.Context(), later)
	held, berr := b.log.Bounds(t.Context(), topic.Partitions[0])
	if err != nil || berr != nil || len(now.Partitions) != 1 || len(now.Config) > 0 || held[0].Bounds.First != 0 {
		t.Errorf("the topic is %+v with %+v, %v, %v", now, held, err, berr)
	}
}
