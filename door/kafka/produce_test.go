package kafka_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// stored returns the first batch of a partition as readers get it.
func (b *broker) stored(topic string, partition int32) (batch.Header, []batch.Record) {
	b.t.Helper()
	p := b.fetch(topic, partition, 0)
	for raw, err := range batch.Split(p.RecordBatches) {
		if err != nil {
			b.t.Fatal(err)
		}
		h, err := batch.Check(raw)
		if err != nil {
			b.t.Fatal(err)
		}
		var records []batch.Record
		for r, err := range batch.Records(raw, 1<<30) {
			if err != nil {
				b.t.Fatal(err)
			}
			records = append(records, r)
		}
		return h, records
	}
	b.t.Fatalf("%s/%d holds nothing", topic, partition)
	return batch.Header{}, nil
}

func TestBatchesRestAsTheyWereSent(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	for i, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		raw := sealed(t, codec, value("one"), value("two"))
		base := b.mustProduce("t", 0, bytes.Clone(raw))
		if base != int64(2*i) {
			t.Errorf("%v: base offset %d", codec, base)
		}
		got := b.fetch("t", 0, base).RecordBatches
		batch.Patch(raw, base, 0)
		if !bytes.Equal(got, raw) {
			t.Errorf("%v: sent\n%x, read\n%x", codec, raw, got)
		}
	}
}

func TestAFetchInTheMiddleOfABatchGetsTheWholeBatch(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("0")))
	b.mustProduce("t", 0, sealed(t, batch.None, value("1"), value("2"), value("3")))
	p := b.fetch("t", 0, 2)
	if base := binary.BigEndian.Uint64(p.RecordBatches); base != 1 {
		t.Errorf("the batch begins at %d", base)
	}
	cl := b.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(2)}}))
	for offset := int64(2); offset <= 3; {
		for _, r := range cl.PollFetches(limit(t)).Records() {
			if r.Offset != offset {
				t.Errorf("record at %d, expected %d", r.Offset, offset)
			}
			offset++
		}
	}
}

func TestCompressionTypeOfATopicRules(t *testing.T) {
	b := start(t, kafka.Config{})
	for setting, codec := range map[string]batch.Codec{"uncompressed": batch.None, "gzip": batch.Gzip, "snappy": batch.Snappy, "lz4": batch.LZ4, "zstd": batch.Zstd} {
		for _, sent := range []batch.Codec{batch.None, batch.LZ4} {
			topic := fmt.Sprint(setting, sent)
			b.createTopic(topic, 1, map[string]string{"compression.type": setting})
			b.mustProduce(topic, 0, sealed(t, sent, value("one"), value("two")))
			h, records := b.stored(topic, 0)
			if h.Attributes.Codec() != codec || len(records) != 2 || string(records[1].Value) != "two" || records[0].Timestamp != value("").Timestamp {
				t.Errorf("%v sent to a topic with %s: %v, %+v", sent, setting, h.Attributes.Codec(), records)
			}
		}
	}
}

func TestLogAppendTimeIsTheBrokers(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"})
	before := time.Now().UnixMilli()
	p := b.produce("t", 0, sealed(t, batch.None, value("v")))
	after := time.Now().UnixMilli()
	h, records := b.stored("t", 0)
	if !h.Attributes.AppendTime() || records[0].Timestamp != p.LogAppendTime || p.LogAppendTime < before || p.LogAppendTime > after {
		t.Errorf("append time %d, the record's is %d; it was produced from %d to %d", p.LogAppendTime, records[0].Timestamp, before, after)
	}
	if newest := b.list("t", 0, -3); newest.Timestamp != p.LogAppendTime || newest.Offset != 0 {
		t.Errorf("the newest is %+v", newest)
	}
	b.createTopic("own", 1, nil)
	if p := b.produce("own", 0, sealed(t, batch.None, value("v"))); p.LogAppendTime != -1 {
		t.Errorf("append time %d on a topic with CreateTime", p.LogAppendTime)
	}
}

func (b *broker) newProducerID() int64 {
	b.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.ProducerID, req.ProducerEpoch = 4, -1, -1
	resp := ask[*kmsg.InitProducerIDResponse](b, req)
	if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 {
		b.t.Fatalf("InitProducerId: %+v", resp)
	}
	return resp.ProducerID
}

func sequenced(t testing.TB, id int64, epoch int16, sequence int32, records ...batch.Record) []byte {
	raw := sealed(t, batch.None, records...)
	binary.BigEndian.PutUint64(raw[43:], uint64(id))
	binary.BigEndian.PutUint16(raw[51:], uint16(epoch))
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	return valid(raw)
}

func TestAnIdempotentRetryIsStoredOnce(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	id := b.newProducerID()
	if other := b.newProducerID(); other == id {
		t.Errorf("two producers have the id %d", id)
	}
	two := []batch.Record{value("a"), value("b")}
	for _, c := range []struct {
		epoch    int16
		sequence int32
		base     int64
		want     *kerr.Error
	}{
		{0, 0, 0, nil}, {0, 2, 2, nil}, {0, 2, 2, nil}, {0, 0, 0, nil}, // retries
		{0, 6, -1, kerr.OutOfOrderSequenceNumber},
		{0, 4, 4, nil},
		{1, 3, -1, kerr.OutOfOrderSequenceNumber},
		{1, 0, 6, nil},
		{0, 6, -1, kerr.InvalidProducerEpoch},
	} {
		p := b.produce("t", 0, sequenced(t, id, c.epoch, c.sequence, two...))
		wantCode(t, fmt.Sprintf("epoch %d, sequence %d", c.epoch, c.sequence), p.ErrorCode, c.want)
		if p.BaseOffset != c.base {
			t.Errorf("epoch %d, sequence %d: base offset %d, expected %d", c.epoch, c.sequence, p.BaseOffset, c.base)
		}
	}
	if end := b.end("t", 0); end != 8 {
		t.Errorf("%d records are there", end)
	}
}

// Apache Kafka's producer begins a new epoch only when it is told where the log starts.
func TestAnUnknownProducerIsToldWhereTheLogStarts(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	id := b.newProducerID()
	b.mustProduce("t", 0, sealed(t, batch.None, value("a"), value("b")))
	b.deleteRecords("t", 0, 2)
	p := b.produce("t", 0, sequenced(t, id, 0, 5, value("c")))
	wantCode(t, "in the middle of its sequence", p.ErrorCode, kerr.UnknownProducerID)
	if p.LogStartOffset != 2 {
		t.Errorf("the log starts at %d, want 2", p.LogStartOffset)
	}
	p = b.produce("t", 0, sequenced(t, id, 1, 0, value("c")))
	if p.ErrorCode != 0 || p.BaseOffset != 2 || p.LogStartOffset != 2 {
		t.Errorf("a new epoch: %+v", p)
	}
}

func TestRefusedBatchesAreNotKept(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	refused := kmsg.NewProduceRequestTopicPartition()
	refused.Partition, refused.Records = 1, make([]byte, 4<<20)
	for range 50 {
		req := produceRequest("t", 0, sealed(t, batch.None, value("v")))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, refused)
		ps := ask[*kmsg.ProduceResponse](b, req).Topics[0].Partitions
		if ps[0].ErrorCode != 0 || ps[1].ErrorCode == 0 {
			t.Fatalf("%+v", ps)
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 100<<20 {
		t.Errorf("%d MiB are held for 50 records, after 200 MiB were refused", m.HeapAlloc>>20)
	}
}

func TestTransactionsAreRefusedClearly(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID = 4, kmsg.StringPtr("tx")
	wantCode(t, "InitProducerId", ask[*kmsg.InitProducerIDResponse](b, req).ErrorCode, kerr.TransactionalIDAuthorizationFailed)
	req.TransactionalID = kmsg.StringPtr("")
	wantCode(t, "with an empty id", ask[*kmsg.InitProducerIDResponse](b, req).ErrorCode, kerr.InvalidRequest)
	produce := produceRequest("t", 0, sealed(t, batch.None, value("v")))
	produce.TransactionID = kmsg.StringPtr("tx")
	p := ask[*kmsg.ProduceResponse](b, produce).Topics[0].Partitions[0]
	wantCode(t, "Produce", p.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
	if text(p.ErrorMessage) != "transactions are not supported: unset transactional.id" {
		t.Errorf("message %q", text(p.ErrorMessage))
	}
}

func TestEveryVersionOfProduceAndFetchWorks(t *testing.T) {
	b := start(t, kafka.Config{})
	topic := b.createTopic("t", 1, nil)
	offset := int64(0)
	for version := int16(3); version <= 13; version++ {
		req := produceRequest("t", 0, sealed(t, batch.None, value("v")))
		req.Version = version
		if version >= 13 {
			req.Topics[0].Topic, req.Topics[0].TopicID = "", topic.ID
		}
		p := ask[*kmsg.ProduceResponse](b, req).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.BaseOffset != offset {
			t.Errorf("produce version %d: error %d, base offset %d, expected %d", version, p.ErrorCode, p.BaseOffset, offset)
		}
		offset++
	}
	for version := int16(4); version <= 18; version++ {
		req := fetchRequest("t", 0, 4)
		req.Version = version
		if version >= 13 {
			req.Topics[0].Topic, req.Topics[0].TopicID = "", topic.ID
		}
		p := ask[*kmsg.FetchResponse](b, req).Topics[0].Partitions[0]
		batches := 0
		for _, err := range batch.Split(p.RecordBatches) {
			if err != nil {
				t.Fatal(err)
			}
			batches++
		}
		if p.ErrorCode != 0 || p.HighWatermark != offset || p.LastStableOffset != offset || batches != int(offset)-4 {
			t.Errorf("fetch version %d: %+v, %d batches", version, p, batches)
		}
	}
	zstd := produceRequest("t", 0, sealed(t, batch.Zstd, value("v")))
	zstd.Version = 6
	wantCode(t, "zstd before version 7", ask[*kmsg.ProduceResponse](b, zstd).Topics[0].Partitions[0].ErrorCode, kerr.UnsupportedCompressionType)
}

func TestApiVersionsIsTheTable(t *testing.T) {
	b := start(t, kafka.Config{})
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "test", "1.0"
	resp := ask[*kmsg.ApiVersionsResponse](b, req)
	if f := resp.FinalizedFeatures; len(f) != 1 || len(resp.SupportedFeatures) != 1 || f[0].Name != "group.version" || f[0].MaxVersionLevel != 1 {
		t.Errorf("features %v %v", resp.SupportedFeatures, resp.FinalizedFeatures)
	}
	var keys []int16
	for _, k := range resp.ApiKeys {
		keys = append(keys, k.ApiKey)
		if r := kmsg.RequestForKey(k.ApiKey); r == nil || k.MaxVersion > r.MaxVersion() {
			t.Errorf("%s goes up to version %d, kmsg does not", kmsg.NameForKey(k.ApiKey), k.MaxVersion)
		}
	}
	if !slices.IsSorted(keys) {
		t.Errorf("keys %v", keys)
	}
	for _, key := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.EndTxn, kmsg.StreamsGroupHeartbeat, kmsg.ShareFetch} {
		if slices.Contains(keys, key.Int16()) {
			t.Errorf("%s is advertised", key.Name())
		}
	}
	for _, name := range []string{"", "-x", "x-", "a b", "a\n"} {
		req.ClientSoftwareName = name
		wantCode(t, fmt.Sprintf("software name %q", name), ask[*kmsg.ApiVersionsResponse](b, req).ErrorCode, kerr.InvalidRequest)
	}
}

func TestDescribeProducersListsWhoWrote(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	id := b.newProducerID()
	b.mustProduce("t", 0, sequenced(t, id, 0, 0, value("a"), value("b")))
	b.mustProduce("t", 1, sequenced(t, b.newProducerID(), 0, 0, value("a")))
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 5}
	req.Topics = append(req.Topics, rt)
	ps := ask[*kmsg.DescribeProducersResponse](b, req).Topics[0].Partitions
	wantCode(t, "unknown partition", ps[1].ErrorCode, kerr.UnknownTopicOrPartition)
	if len(ps[0].ActiveProducers) != 1 {
		t.Fatalf("producers %+v", ps[0])
	}
	p := ps[0].ActiveProducers[0]
	if age := time.Since(time.UnixMilli(p.LastTimestamp)); p.ProducerID != id || p.ProducerEpoch != 0 || p.LastSequence != 1 || p.CurrentTxnStartOffset != -1 || age > time.Minute || age < -time.Minute {
		t.Errorf("producer %+v, expected %d", p, id)
	}
}

func TestMaxMessageBytesCountsWhatIsStored(t *testing.T) {
	b := start(t, kafka.Config{})
	zeros := sealed(t, batch.Zstd, batch.Record{Value: make([]byte, 52<<20), Timestamp: 1})
	noise := make([]byte, 10_000)
	for i := range noise {
		noise[i] = byte(i * i >> 3 * 31)
	}
	for _, c := range []struct {
		name, codec string
		limit       int
		raw         []byte
		want        *kerr.Error
	}{
		{"small bytes that grow", "uncompressed", 1 << 20, zeros, kerr.MessageTooLarge},
		{"small bytes that grow a little", "gzip", len(zeros) + 1000, zeros, kerr.MessageTooLarge},
		{"small bytes that grow within the limit", "gzip", 1 << 20, zeros, nil},
		{"bytes that pass the limit by a header", "uncompressed", 10_020, sealed(t, batch.Zstd, batch.Record{Value: noise, Timestamp: 1}), kerr.MessageTooLarge},
		{"bytes within the limit", "uncompressed", 11_000, sealed(t, batch.Zstd, batch.Record{Value: noise, Timestamp: 1}), nil},
	} {
		name := strings.ReplaceAll(c.name, " ", "-")
		b.createTopic(name, 1, map[string]string{"compression.type": c.codec, "max.message.bytes": fmt.Sprint(c.limit)})
		if len(c.raw) > c.limit {
			t.Fatalf("%s: the batch has %d bytes itself", c.name, len(c.raw))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := b.produce(name, 0, bytes.Clone(c.raw))
		runtime.ReadMemStats(&after)
		wantCode(t, c.name, p.ErrorCode, c.want)
		if grown := after.TotalAlloc - before.TotalAlloc; c.want != nil && grown > 32<<20 {
			t.Errorf("%s: %d bytes were allocated to refuse %d", c.name, grown, len(c.raw))
		}
		if c.want != nil && !strings.Contains(text(p.ErrorMessage), fmt.Sprint(c.limit)) {
			t.Errorf("%s: the limit %d is not told: %s", c.name, c.limit, text(p.ErrorMessage))
		}
		for raw, err := range batch.Split(b.fetch(name, 0, 0).RecordBatches) {
			if err != nil || len(raw) > c.limit {
				t.Errorf("%s: %d bytes are stored, the limit is %d (%v)", c.name, len(raw), c.limit, err)
			}
		}
	}
}

func TestTimestampsThatCannotBeShownAreRefused(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	at := func(ms ...int64) []byte {
		records := make([]batch.Record, len(ms))
		for i := range records {
			records[i].Timestamp = 1_700_000_000_000
		}
		raw := sealed(t, batch.None, records...)
		// As a client would write them: the first record's time is the base, and the deltas are the
		// others'.
		binary.BigEndian.PutUint64(raw[27:], uint64(ms[0]))
		binary.BigEndian.PutUint64(raw[35:], uint64(slices.Max(ms)))
		return valid(raw)
	}
	p := b.produce("t", 0, at(math.MaxInt64))
	wantCode(t, "2^63-1", p.ErrorCode, kerr.InvalidTimestamp)
	if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 0 {
		t.Errorf("the record is told as %+v", p.ErrorRecords)
	}
	wantCode(t, "one too high", b.produce("t", 0, at(batch.MaxTimestamp+1)).ErrorCode, kerr.InvalidTimestamp)
	wantCode(t, "the highest", b.produce("t", 0, at(batch.MaxTimestamp)).ErrorCode, nil)
	onlyHeader := sealed(t, batch.None, value("v"))
	binary.BigEndian.PutUint64(onlyHeader[35:], math.MaxInt64)
	wantCode(t, "a header alone", b.produce("t", 0, valid(onlyHeader)).ErrorCode, kerr.InvalidTimestamp)
	if shown := time.UnixMilli(batch.MaxTimestamp).UTC().Format(time.RFC3339Nano); shown != "9999-12-31T23:59:59.999Z" {
		t.Errorf("the highest is shown as %s", shown)
	}
}
