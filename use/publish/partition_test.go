package publish_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

func TestHashIsThatOfKafka(t *testing.T) {
	for key, want := range map[string]int32{ // from UtilsTest of Apache Kafka
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := publish.Hash([]byte(key)); got != want {
			t.Errorf("Hash(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestKeysGoWhereOtherKafkaClientsSendThem(t *testing.T) {
	random := seed.Random(t)
	franz := kgo.StickyKeyPartitioner(nil).ForTopic("orders")
	for range 20_000 {
		key := make([]byte, random.IntN(40))
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		n := 1 + random.IntN(200)
		want := franz.Partition(&kgo.Record{Key: key}, n)
		if got := publish.Default(&publish.Event{Key: key}, n); int(got) != want {
			t.Fatalf("key %x, %d partitions: to %d, and franz-go says %d", key, n, got, want)
		}
	}
}

func TestEventsWithoutAKeyStayForAWhileAndUseAllPartitions(t *testing.T) {
	const n, events = 8, 64 * 400
	moves, last := 0, int32(-1)
	seen := make(map[int32]int)
	for range events {
		at := publish.Default(&publish.Event{Value: []byte("v")}, n)
		if at != last {
			moves++
		}
		last = at
		seen[at]++
	}
	if moves > events/64+1 {
		t.Errorf("they moved %d times", moves)
	}
	for at := range int32(n) {
		if seen[at] < events/n/2 || seen[at] > events/n*2 {
			t.Errorf("partition %d got %d of %d events", at, seen[at], events)
		}
	}
}

// A topic whose events always have the same turn among those of others is not stuck with one
// partition.
func TestEventsWithoutAKeyAreNotInStepWithOtherTopics(t *testing.T) {
	for _, every := range []int{64, 64 * 8, 63, 65} {
		const n = 8
		seen := make(map[int32]bool)
		for i := range every * 500 {
			at := publish.Default(&publish.Event{Value: []byte("v")}, n)
			if i%every == 0 {
				seen[at] = true
			}
		}
		if len(seen) != n {
			t.Errorf("every %dth event: %d of %d partitions", every, len(seen), n)
		}
	}
}

func TestAPartitionerOfOnesOwnDecides(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	topic(t, log, "orders", 3)
	p := publish.New(log, publish.Config{Partitioner: func(e *publish.Event, n int) int32 {
		if e.Topic != "orders" || n != 3 {
			t.Errorf("asked for topic %q of %d partitions", e.Topic, n)
		}
		return int32(e.Value[0])
	}})
	placed, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Value: []byte{2}},
		publish.Event{Topic: "orders", Value: []byte{9}, Partition: number(1)}) // an event that names its partition is not asked about
	if err != nil || placed[0].Partition != 2 || placed[1].Partition != 1 {
		t.Errorf("they went to %v (%v)", placed, err)
	}
	for answer, said := range map[byte]string{3: `"3"`, 100: `"100"`} {
		_, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Value: []byte{answer}})
		var invalid *eventlog.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), "partitioner") || !strings.Contains(err.Error(), "has 3") {
			t.Errorf("the partitioner answered %d: %v", answer, err)
		}
	}
	p = publish.New(log, publish.Config{Partitioner: func(*publish.Event, int) int32 { return -1 }})
	if _, err := p.Publish(t.Context(), publish.Event{Topic: "orders"}); err == nil || !strings.Contains(err.Error(), `"-1"`) {
		t.Errorf("the partitioner answered -1: %v", err)
	}
}
