package batch_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/weir-log/weir/eventlog/batch"
)

const limit = 1 << 20

var codecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// sample has what is easily lost: null and empty keys, values and headers, repeated header keys,
// times out of order.
var sample = []batch.Record{
	{Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte("v")},
	{Timestamp: 1_700_000_000_500, Key: nil, Value: []byte{}},
	{Timestamp: 1_699_999_999_000, Key: []byte{}, Value: nil},
	{Timestamp: 1_700_000_000_500, Value: bytes.Repeat([]byte("long "), 30_000), Headers: []batch.RecordHeader{
		{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}}},
	{Timestamp: 1_699_999_999_999, Value: []byte("v")},
}

func seal(t testing.TB, records []batch.Record, codec batch.Codec) []byte {
	t.Helper()
	raw, err := batch.Seal(records, codec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// decode reads a batch through every verb that looks at all of it.
func decode(t testing.TB, raw []byte) []batch.Record {
	t.Helper()
	h, err := batch.Check(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := batch.Validate(raw, h, limit); err != nil {
		t.Fatal(err)
	}
	var records []batch.Record
	for rec, err := range batch.Records(raw, limit) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	return records
}

// diff is cmp.Diff, which takes seconds on long values under the race detector, for when there is
// one.
func diff(want, got []batch.Record) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

func placed(records []batch.Record, base int64) []batch.Record {
	records = slices.Clone(records)
	for i := range records {
		records[i].Offset = base + int64(i)
	}
	return records
}

func TestSealedRecordsComeBackWhole(t *testing.T) {
	for _, codec := range codecs {
		raw := seal(t, sample, codec)
		h, err := batch.Check(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Attributes.Codec() != codec || h.Records != 5 || h.BaseTimestamp != sample[0].Timestamp || h.MaxTimestamp != sample[1].Timestamp || h.ProducerID != -1 {
			t.Errorf("%v: header %+v", codec, h)
		}
		batch.Patch(raw, 1000, 7)
		if diff := diff(placed(sample, 1000), decode(t, raw)); diff != "" {
			t.Errorf("%v: %s", codec, diff)
		}
	}
}

func TestAnyRecordsComeBackWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		from := rapid.SampledFrom(codecs).Draw(t, "codec")
		raw, err := batch.Seal(records, from)
		if err != nil {
			t.Fatal(err)
		}
		to := rapid.SampledFrom(codecs).Draw(t, "recompressed")
		again, err := batch.Recompress(raw, to, limit, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		base := rapid.Int64Range(0, 1<<60).Draw(t, "base")
		for _, raw := range [][]byte{raw, again} {
			batch.Patch(raw, base, 0)
			h, err := batch.Check(raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := batch.Validate(raw, h, limit); err != nil {
				t.Fatal(err)
			}
			var got []batch.Record
			for rec, err := range batch.Records(raw, limit) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rec)
			}
			if diff := diff(placed(records, base), got); diff != "" {
				t.Fatalf("%v to %v: %s", from, to, diff)
			}
		}
	})
}

func drawRecords(t *rapid.T) []batch.Record {
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 200))
	header := rapid.Custom(func(t *rapid.T) batch.RecordHeader {
		return batch.RecordHeader{Key: rapid.String().Draw(t, "header key"), Value: field.Draw(t, "header value")}
	})
	record := rapid.Custom(func(t *rapid.T) batch.Record {
		rec := batch.Record{
			Timestamp: rapid.Int64Range(-1, batch.MaxTimestamp).Draw(t, "timestamp"),
			Key:       field.Draw(t, "key"),
			Value:     field.Draw(t, "value"),
		}
		if n := rapid.IntRange(0, 3).Draw(t, "count of headers"); n > 0 {
			rec.Headers = rapid.SliceOfN(header, n, n).Draw(t, "headers")
		}
		return rec
	})
	return rapid.SliceOfN(record, 1, 50).Draw(t, "records")
}

func TestFranzGoReadsWhatWeSeal(t *testing.T) {
	for _, codec := range codecs {
		raw := seal(t, sample, codec)
		batch.Patch(raw, 5, 3)
		got := franzRecords(t, raw)
		if diff := diff(placed(sample, 5), got); diff != "" {
			t.Errorf("%v: %s", codec, diff)
		}
	}
}

// franzRecords decodes as franz-go's consumer does.
func franzRecords(t *testing.T, raw []byte) []batch.Record {
	t.Helper()
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = raw
	partition, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &response, kgo.DefaultDecompressor(), nil)
	if partition.Err != nil {
		t.Fatal(partition.Err)
	}
	var records []batch.Record
	for _, r := range partition.Records {
		rec := batch.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, rec)
	}
	return records
}

func TestWeReadWhatFranzGoSends(t *testing.T) {
	for codec, franz := range map[batch.Codec]kgo.CompressionCodec{
		batch.None: kgo.NoCompression(), batch.Gzip: kgo.GzipCompression(), batch.Snappy: kgo.SnappyCompression(),
		batch.LZ4: kgo.Lz4Compression(), batch.Zstd: kgo.ZstdCompression(),
	} {
		raw := franzBatch(t, franz, sample)
		h, err := batch.Check(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Attributes.Codec() != codec || h.ProducerID < 0 || h.BaseSequence != 1 {
			t.Errorf("%v: header %+v", codec, h)
		}
		if diff := diff(placed(sample, 0), decode(t, raw)); diff != "" {
			t.Errorf("%v: %s", codec, diff)
		}
		again, err := batch.Recompress(raw, batch.Gzip, limit, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		h2, err := batch.Check(again)
		if err != nil {
			t.Fatal(err)
		}
		h.Length, h.CRC, h.Attributes = h2.Length, h2.CRC, h2.Attributes
		if h != h2 {
			t.Errorf("%v: recompressed, the header %+v became %+v", codec, h, h2)
		}
	}
}

// franzBatch returns the batch that an idempotent franz-go producer sends for records, its second.
func franzBatch(t *testing.T, codec kgo.CompressionCodec, records []batch.Record) []byte {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var raw []byte
	cluster.ControlKey(0, func(r kmsg.Request) (kmsg.Response, error, bool) {
		raw = bytes.Clone(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
		return nil, nil, false
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(codec), kgo.ManualFlushing())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func(records ...*kgo.Record) {
		for _, r := range records {
			client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Until the client has heard of the topic, it may send the first records alone.
	send(&kgo.Record{Topic: "t"})
	var franz []*kgo.Record
	for _, rec := range records {
		r := &kgo.Record{Topic: "t", Key: rec.Key, Value: rec.Value, Timestamp: time.UnixMilli(rec.Timestamp)}
		for _, h := range rec.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		franz = append(franz, r)
	}
	send(franz...)
	return raw
}

func TestGoldenBatch(t *testing.T) {
	raw := seal(t, []batch.Record{
		{Timestamp: 1000, Key: []byte("key"), Value: []byte("value"), Headers: []batch.RecordHeader{{Key: "h", Value: nil}}},
		{Timestamp: 1001, Value: []byte{}},
	}, batch.None)
	want := "0000000000000000" + "0000004a" + "ffffffff" + "02" + "CRC" + "0000" + "00000001" + "00000000000003e8" + "00000000000003e9" +
		"ffffffffffffffff" + "ffff" + "ffffffff" + "00000002" +
		"22" + "00" + "00" + "00" + "06" + "6b6579" + "0a" + "76616c7565" + "02" + "02" + "68" + "01" +
		"0c" + "00" + "02" + "02" + "01" + "00" + "00"
	got := fmt.Sprintf("%x%s%x", raw[:17], "CRC", raw[21:])
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestAppendTimeRulesOverRecordTimes(t *testing.T) {
	for _, codec := range codecs {
		raw := seal(t, sample, codec)
		batch.StampAppendTime(raw, 42)
		for _, rec := range decode(t, raw) {
			if rec.Timestamp != 42 {
				t.Errorf("%v: record %d has time %d", codec, rec.Offset, rec.Timestamp)
			}
		}
		if got := franzRecords(t, raw); got[1].Timestamp != 42 {
			t.Errorf("%v: franz-go reads time %d", codec, got[1].Timestamp)
		}
		newest, found, err := batch.Newest(raw, 0, 0, limit)
		if want := (batch.Moment{Offset: 0, Timestamp: 42}); err != nil || !found || newest != want {
			t.Errorf("%v: newest %v, %v", codec, newest, err)
		}
	}
}

func TestTimesAreFoundInsideABatch(t *testing.T) {
	for _, codec := range codecs {
		raw := seal(t, sample, codec)
		newest, _, err := batch.Newest(raw, 10, 0, limit)
		if want := (batch.Moment{Offset: 11, Timestamp: 1_700_000_000_500}); err != nil || newest != want {
			t.Errorf("%v: newest %v, %v", codec, newest, err)
		}
		for since, want := range map[int64]int64{0: 10, 1_700_000_000_000: 10, 1_700_000_000_001: 11, 1_700_000_000_500: 11, 1_700_000_000_501: -1} {
			first, found, err := batch.FirstSince(raw, 10, 0, since, limit)
			if err != nil || found != (want >= 0) || found && first.Offset != want {
				t.Errorf("%v: first since %d is %v, %v, %v; want %d", codec, since, first, found, err, want)
			}
		}
		for from := int64(9); from <= 10+int64(len(sample)); from++ { // what is below was deleted
			newest, found, err := batch.Newest(raw, 10, from, limit)
			if there := from < 10+int64(len(sample)); err != nil || found != there || found && newest.Offset < from {
				t.Errorf("%v: the newest from %d on is %v, %v, %v", codec, from, newest, found, err)
			}
			first, found, err := batch.FirstSince(raw, 10, from, -1, limit)
			if there := from < 10+int64(len(sample)); err != nil || found != there || found && first.Offset != max(from, 10) {
				t.Errorf("%v: the first from %d on is %v, %v, %v", codec, from, first, found, err)
			}
		}
	}
}

func TestSplitWalksNeighbours(t *testing.T) {
	var all []byte
	for _, codec := range codecs {
		all = append(all, seal(t, sample[:2], codec)...)
	}
	n := 0
	for raw, err := range batch.Split(all) {
		if err != nil {
			t.Fatal(err)
		}
		if h, err := batch.Check(raw); err != nil || h.Attributes.Codec() != codecs[n] {
			t.Fatalf("batch %d: %+v, %v", n, h, err)
		}
		n++
	}
	if n != len(codecs) {
		t.Fatalf("%d batches of %d", n, len(codecs))
	}
	var last error
	n = 0
	for _, last = range batch.Split(all[:len(all)-1]) {
		n++
	}
	if last == nil || n != len(codecs) {
		t.Fatalf("a batch cut short: %d pieces, last error %v", n, last)
	}
}

func TestSnappyComesRawOrFramed(t *testing.T) {
	framed := seal(t, sample, batch.Snappy)
	if !bytes.HasPrefix(framed[61:], []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")) {
		t.Errorf("the data begins with %q", framed[61:77])
	}
	raw := franzBatch(t, kgo.SnappyCompression(), sample)
	if bytes.HasPrefix(raw[61:], []byte("\x82SNAPPY")) {
		t.Error("franz-go sends framed snappy; this test wants a raw block")
	}
	for _, raw := range [][]byte{framed, raw} {
		if diff := diff(placed(sample, 0), decode(t, raw)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestKeptRecordsStayAsTheyWere(t *testing.T) {
	var records []batch.Record
	for i := range 5000 {
		records = append(records, batch.Record{Value: fmt.Appendf(nil, "value %d of many, so that windows are passed", i)})
	}
	for _, codec := range codecs {
		if diff := diff(placed(records, 0), decode(t, seal(t, records, codec))); diff != "" {
			t.Errorf("%v: %s", codec, diff)
		}
	}
}

func TestAppendKeepsWhatStandsBefore(t *testing.T) {
	for _, codec := range codecs {
		two, err := batch.Append([]byte("before"), sample, codec)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(two, []byte("before")) {
			t.Errorf("%v: begins with %q", codec, two[:6])
		}
		decode(t, two[6:])
	}
}
