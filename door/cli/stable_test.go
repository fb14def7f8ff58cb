package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/proctest"
)

// In a weir in which a transaction is open, which no client can begin, readers through Kafka and
// HTTP end where it began; only who reads uncommitted records sees the end of the partition.
func TestClientsReadUpToAnOpenTransaction(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-overlay", proctest.HeldBack(t), "-o", binary, "github.com/weir-log/weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := start(t, binary, "serve", "--store", "memory:")
	p.must(t, "POST", "/v1/topics", `{"name":"orders","partitions":1}`, nil)
	p.must(t, "POST", "/v1/topics/orders/batch", `{"events":[`+strings.Repeat(`{"value":"a","timestamp":1000},`, 4)+`{"value":"a","timestamp":2000}]}`, nil)

	const events = "/v1/topics/orders/partitions/0/events"
	if _, page := p.must(t, "GET", events+"?max=1&offset=latest", "", nil); !strings.Contains(page, `"offset":3,`) || !strings.Contains(page, `"end_offset":5`) {
		t.Errorf("HTTP: from the latest: %s, want offset 3 of 5", page)
	}
	for to, body := range map[string]string{"latest": `"offset":"latest"`, "a time": `"timestamp":3000`} {
		if _, answer := p.must(t, "PUT", "/v1/groups/billing/offsets", `{"offsets":[{"topic":"orders",`+body+`}]}`, nil); !strings.Contains(answer, `"offset":3`) {
			t.Errorf("HTTP: reset to %s: %s, want offset 3", to, answer)
		}
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(p.kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	list := func(isolation int8, timestamp int64) int64 {
		t.Helper()
		r := kmsg.NewPtrListOffsetsRequest()
		r.IsolationLevel = isolation
		topic, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		topic.Topic, part.Timestamp = "orders", timestamp
		topic.Partitions = append(topic.Partitions, part)
		r.Topics = append(r.Topics, topic)
		answer, err := r.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Topics[0].Partitions[0].Offset
	}
	for _, c := range []struct {
		what                   string
		timestamp              int64
		uncommitted, committed int64
	}{
		{"the latest", -1, 5, 3},
		{"the earliest", -2, 0, 0},
		{"the newest", -3, 4, -1},
		{"what is below the transaction", 1000, 0, 0},
		{"what is in the transaction", 2000, 4, -1},
	} {
		if got := list(0, c.timestamp); got != c.uncommitted {
			t.Errorf("%s, uncommitted: offset %d, want %d", c.what, got, c.uncommitted)
		}
		if got := list(1, c.timestamp); got != c.committed {
			t.Errorf("%s, committed: offset %d, want %d", c.what, got, c.committed)
		}
	}

	fetch := func(name string, from int64) kmsg.FetchResponseTopicPartition {
		t.Helper()
		r := kmsg.NewPtrFetchRequest()
		r.MinBytes, r.MaxBytes, r.IsolationLevel = 1, 1<<20, 1
		topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		topic.Topic, topic.TopicID = name, topicID(t, client, name)
		part.FetchOffset, part.PartitionMaxBytes = from, 1<<20
		topic.Partitions = append(topic.Partitions, part)
		r.Topics = append(r.Topics, topic)
		answer, err := r.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Topics[0].Partitions[0]
	}
	if got := fetch("orders", 0); got.HighWatermark != 5 || got.LastStableOffset != 3 {
		t.Errorf("fetch: high watermark %d, last stable offset %d; want 5 and 3", got.HighWatermark, got.LastStableOffset)
	}
}

func topicID(t *testing.T, client *kgo.Client, name string) [16]byte {
	t.Helper()
	r := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	r.Topics = append(r.Topics, topic)
	answer, err := r.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[0].TopicID
}
