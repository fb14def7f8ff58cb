package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
)

// The last records of all are committed although nothing comes after them that would make up for
// it.
func TestAKafkaMemberRepeatsACommitThatFailed(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, steady))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	refused := make(chan struct{})
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		defer close(refused)
		in := r.(*kmsg.OffsetCommitRequest)
		out := in.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range in.Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				part := kmsg.NewOffsetCommitResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, kerr.UnknownServerError.Code
				topic.Partitions = append(topic.Partitions, part)
			}
			out.Topics = append(out.Topics, topic)
		}
		return out, nil, true // this once
	})

	w := &world{begin: time.Now()}
	file, err := os.Create(filepath.Join(t.TempDir(), "history"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w.history = judge.NewHistory(file, w.now)
	w.model = judge.NewModel(w.now, w.history)
	w.model.Born(w.model.Begins(steady, 0), eventlog.TopicID{1})
	seeds := []*broker{{kafka: cluster.ListenAddrs()[0]}}
	producer, err := w.kafkaClient(seeds)
	if err != nil {
		t.Fatal(err)
	}
	defer w.rest()
	for _, rec := range w.model.Invoke("p", steady, 3, true) {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: steady, Value: []byte(rec.Value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	w.brokers = seeds
	seeds[0].client = http.DefaultClient
	stop()
	runKafka(0, static)(ctx, w, group{name: "g", topics: []string{steady}})
	<-refused
	admin := kadm.NewClient(producer)
	for late := time.Now().Add(30 * time.Second); ; {
		offsets, err := admin.FetchOffsets(t.Context(), "g")
		o, has := offsets.Lookup(steady, 0)
		if err == nil && has && o.At == 3 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the group is at %v (%v) half a minute after its commit of offset 3 was refused", o.At, err)
		}
	}
	if found := w.model.Found(); len(found) > 0 {
		t.Errorf("broken: %v", found)
	}
}
