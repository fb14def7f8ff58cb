package kafka_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	header := func(k string, v []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: v} }
	sent := []*kgo.Record{
		{Key: []byte("k"), Value: []byte("v"), Timestamp: at(1)},
		{Key: nil, Value: []byte("no key"), Timestamp: at(1_700_000_000_000)},
		{Key: []byte("tombstone"), Value: nil, Timestamp: at(1_600_000_000_000)},
		{Key: nil, Value: nil, Timestamp: at(0)},
		{Key: []byte{}, Value: []byte{}, Timestamp: at(2)},
		{Value: []byte("headers"), Timestamp: at(3), Headers: []kgo.RecordHeader{header("b", []byte("1")), header("a", nil), header("b", []byte{}), header("", []byte("2"))}},
		{Value: make([]byte, 100_000), Timestamp: at(4)},
	}
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, kafka.Config{})
			producer := b.client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("t"))
			var records []*kgo.Record
			for _, r := range sent {
				copied := *r
				records = append(records, &copied)
			}
			if err := producer.ProduceSync(limit(t), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			consumer := b.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			var got []*kgo.Record
			for len(got) < len(sent) {
				fetches := consumer.PollFetches(limit(t))
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				got = append(got, fetches.Records()...)
			}
			opts := cmp.Options{cmpopts.IgnoreUnexported(kgo.Record{}), cmpopts.IgnoreFields(kgo.Record{}, "Context", "Attrs", "ProducerID", "ProducerEpoch", "LeaderEpoch", "Topic", "Offset"), cmpopts.EquateEmpty(), wholeBytes}
			if diff := cmp.Diff(sent, got, opts); diff != "" {
				t.Error(diff)
			}
			for i, r := range got {
				if r.Offset != int64(i) {
					t.Errorf("record %d is at offset %d", i, r.Offset)
				}
				if (r.Value == nil) != (sent[i].Value == nil) || (r.Key == nil) != (sent[i].Key == nil) {
					t.Errorf("record %d: null and empty are confused", i)
				}
			}
		})
	}
}

func TestFetchWaitsForNoMoreThanItsAnswerHolds(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	req := fetchRequest("t", 0, 0)
	req.MinBytes, req.MaxBytes, req.MaxWaitMillis = 1<<20, 100, int32(5*time.Minute/time.Millisecond)
	w := b.dial()
	w.send(frame(req, 1))
	b.mustProduce("t", 0, sealed(t, batch.None, value("a record that alone is more than MaxBytes of the request allows, which is 100")))
	resp := w.receive(req, 1).(*kmsg.FetchResponse)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) <= 100 {
		t.Errorf("error %d, %d bytes, want the record", p.ErrorCode, len(p.RecordBatches))
	}
}

// wholeBytes compares bytes at once, where cmp would look at each.
var wholeBytes = cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))
