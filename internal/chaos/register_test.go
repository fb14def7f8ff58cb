package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTheModelFindsAGroupThatDoesNotGoOnWhereItCommitted(t *testing.T) {
	p := partition{"a", 0}
	commit := func(r *rig, generation int32, offset int64, err error) {
		r.m.committed([]*commit{r.m.commits("g", "m", generation, p, offset)}, err)
	}
	lost := errors.New("the connection was lost")
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"it goes on": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.resumes("g", "n", p, r.m.now(), 9)
		}},
		"it begins": {do: func(r *rig) { r.m.resumes("g", "n", p, r.m.now(), 0) }},
		"it skips": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.resumes("g", "n", p, r.m.now(), 6)
		}},
		"it goes back": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.resumes("g", "n", p, r.m.now(), 5)
		}},
		"it goes back to the beginning": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.resumes("g", "n", p, r.m.now(), 0)
		}},
		"a commit whose answer was lost": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, lost)
			r.m.resumes("g", "n", p, r.m.now(), 9)
			r.m.resumes("g", "n", p, r.m.now(), 5)
		}},
		"a commit whose answer was lost lands in a later generation": {finds: []string{"G2"}, do: func(r *rig) {
			commit(r, 1, 5, lost)
			commit(r, 2, 9, nil)
			r.m.resumes("g", "n", p, r.m.now(), 5)
		}},
		"a commit under way in a group that was deleted, and whose generations began anew": {do: func(r *rig) {
			commit(r, 7, 5, nil)
			r.m.setsBack("g")
			commit(r, 1, 8, nil)
			r.m.commits("g", "m", 1, p, 9)
			r.m.resumes("g", "n", p, r.m.now(), 9)
		}},
		"a commit that came while the member waited for its first record": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			since := r.m.now()
			commit(r, 1, 9, nil)
			r.m.resumes("g", "n", p, since, 5)
		}},
		"what was committed was trimmed": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.trims(r.m.lives["a"][0], 0, 7)
			r.m.resumes("g", "n", p, r.m.now(), 7)
		}},
		"it was reset": {do: func(r *rig) {
			commit(r, 1, 5, nil)
			r.m.setsBack("g")
			r.m.resumes("g", "n", p, r.m.now(), 0)
		}},
		"a process says another offset": {finds: []string{"G3"}, do: func(r *rig) {
			commit(r, 1, 5, nil)
			commit(r, 1, 9, nil)
			r.m.readsCommitted("b", "g", p, r.m.now(), 5)
		}},
		"a partition has two owners": {finds: []string{"G5"}, do: func(r *rig) {
			r.m.owns("g", "m", 3, p)
			r.m.owns("g", "n", 4, p)
			r.m.owns("g", "n", 3, p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.topic("a")
			c.do(r)
			r.broke(c.finds...)
		})
	}
}

// The last records of all are committed although nothing comes after them that would make up for it.
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

	r := newRig(t)
	r.topic(steady)
	w := &world{begin: time.Now(), history: r.m.history, model: r.m}
	seeds := []*broker{{kafka: cluster.ListenAddrs()[0]}}
	producer, err := w.kafkaClient(seeds)
	if err != nil {
		t.Fatal(err)
	}
	defer w.rest()
	for _, rec := range w.model.invoke("p", steady, 3, true) {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: steady, Value: []byte(rec.value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	w.brokers = seeds
	seeds[0].client = http.DefaultClient
	stop()
	runKafka(0, true)(ctx, w, group{name: "g", topics: []string{steady}})
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
	r.broke()
}
