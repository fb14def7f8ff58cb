package kafka_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

func TestBadBatchesAreRefusedWhole(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	unharmed := b.bystander()
	put16 := func(at int, v int) func([]byte) []byte {
		return func(raw []byte) []byte { binary.BigEndian.PutUint16(raw[at:], uint16(v)); return valid(raw) }
	}
	put32 := func(at int, v int) func([]byte) []byte {
		return func(raw []byte) []byte { binary.BigEndian.PutUint32(raw[at:], uint32(v)); return valid(raw) }
	}
	put64 := func(at int, v int) func([]byte) []byte {
		return func(raw []byte) []byte { binary.BigEndian.PutUint64(raw[at:], uint64(v)); return valid(raw) }
	}
	const records = 61 // where they begin
	for _, c := range []struct {
		name   string
		change func(raw []byte) []byte
		want   *kerr.Error
		record int // that is to blame, or -1
	}{
		{"magic 0", func(raw []byte) []byte { raw[16] = 0; return valid(raw) }, kerr.InvalidRecord, -1},
		{"magic 1", func(raw []byte) []byte { raw[16] = 1; return valid(raw) }, kerr.InvalidRecord, -1},
		{"magic 3", func(raw []byte) []byte { raw[16] = 3; return valid(raw) }, kerr.CorruptMessage, -1},
		{"CRC", func(raw []byte) []byte { raw[17]++; return raw }, kerr.CorruptMessage, -1},
		{"a flipped bit", func(raw []byte) []byte { raw[len(raw)-3] ^= 4; return raw }, kerr.CorruptMessage, -1},
		{"length beyond the bytes", put32(8, 10_000), kerr.CorruptMessage, -1},
		{"negative length", put32(8, -5), kerr.CorruptMessage, -1},
		{"length before the end", func(raw []byte) []byte { return append(raw, 0) }, kerr.InvalidRecord, -1},
		{"cut short", func(raw []byte) []byte { return raw[:40] }, kerr.CorruptMessage, -1},
		{"no batch", func(raw []byte) []byte { return raw[:0] }, kerr.InvalidRecord, -1},
		{"null", func([]byte) []byte { return nil }, kerr.InvalidRecord, -1},
		{"two batches", func(raw []byte) []byte { return append(raw, raw...) }, kerr.InvalidRecord, -1},
		{"count -1", put32(57, -1), kerr.InvalidRecord, -1},
		{"count 0", put32(57, 0), kerr.InvalidRecord, -1},
		{"count 2^31-1", put32(57, 1<<31-1), kerr.InvalidRecord, -1},
		{"count one too many", func(raw []byte) []byte { return put32(23, 3)(put32(57, 4)(raw)) }, kerr.InvalidRecord, 3},
		{"count one too few", func(raw []byte) []byte { return put32(23, 1)(put32(57, 2)(raw)) }, kerr.InvalidRecord, -1},
		{"last offset delta", put32(23, 7), kerr.InvalidRecord, -1},
		{"codec 5", put16(21, 5), kerr.UnsupportedCompressionType, -1},
		{"codec 7", put16(21, 7), kerr.UnsupportedCompressionType, -1},
		{"a codec that it is not", put16(21, 1), kerr.InvalidRecord, -1},
		{"control batch", put16(21, 1<<5), kerr.InvalidRecord, -1},
		{"a batch that says weir made it", put16(21, 1<<14), kerr.InvalidRecord, -1},
		{"transactional batch", put16(21, 1<<4), kerr.TransactionalIDAuthorizationFailed, -1},
		{"append time set by a client", put16(21, 1<<3), kerr.InvalidTimestamp, -1},
		{"negative base timestamp", put64(27, -2), kerr.InvalidRecord, -1},
		{"base offset", func(raw []byte) []byte { raw[7] = 1; return raw }, kerr.InvalidRecord, -1},
		{"producer id without sequence", put64(43, 5), kerr.InvalidRecord, -1},
		{"record length past the end", func(raw []byte) []byte { raw[records] = 100; return valid(raw) }, kerr.InvalidRecord, 0},
		{"record offset delta", func(raw []byte) []byte { raw[records+3] = 8; return valid(raw) }, kerr.InvalidRecord, 0},
		{"key length -2", func(raw []byte) []byte { raw[records+4] = 3; return valid(raw) }, kerr.InvalidRecord, 0},
	} {
		raw := c.change(sealed(t, batch.None, value("one"), value("two"), value("three")))
		p := b.produce("t", 0, raw)
		wantCode(t, c.name, p.ErrorCode, c.want)
		if p.BaseOffset != -1 || p.ErrorMessage == nil || *p.ErrorMessage == "" {
			t.Errorf("%s: base offset %d, message %q", c.name, p.BaseOffset, text(p.ErrorMessage))
		}
		switch {
		case c.record < 0 && len(p.ErrorRecords) > 0:
			t.Errorf("%s: blames %v", c.name, p.ErrorRecords)
		case c.record >= 0 && (len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != int32(c.record) || text(p.ErrorRecords[0].ErrorMessage) == ""):
			t.Errorf("%s: blames %v, expected record %d", c.name, p.ErrorRecords, c.record)
		}
	}
	if end := b.end("t", 0); end != 0 {
		t.Errorf("%d records were stored", end)
	}
	b.mustProduce("t", 0, sealed(t, batch.None, value("good")))
	unharmed()
}

// Every record of a batch that is wrong is named (KIP-467), so that clients blame no other.
func TestAllRecordsThatAreWrongAreNamed(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("keyed", 1, map[string]string{"cleanup.policy": "compact"})
	wrong := []int{3, 4, 17}
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Zstd} {
		keys := make([]batch.Record, 20)
		for i := range keys {
			keys[i] = batch.Record{Key: []byte("k"), Value: []byte("v")}
			if slices.Contains(wrong, i) {
				keys[i].Key = nil
			}
		}
		p := b.produce("keyed", 0, sealed(t, codec, keys...))
		wantCode(t, codec.String(), p.ErrorCode, kerr.InvalidRecord)
		var named []int
		for _, r := range p.ErrorRecords {
			if named = append(named, int(r.RelativeOffset)); !strings.Contains(text(r.ErrorMessage), "no key") {
				t.Errorf("%v: of record %d it says %q", codec, r.RelativeOffset, text(r.ErrorMessage))
			}
		}
		if !slices.Equal(named, wrong) {
			t.Errorf("%v: named are %v, want %v", codec, named, wrong)
		}
	}
	// The list has a bound; beyond it clients get the code of the whole batch, and hear of the
	// others when they send them again.
	many := make([]batch.Record, 30_000)
	for i := range many {
		many[i].Value = []byte("v")
	}
	if n := len(b.produce("keyed", 0, sealed(t, batch.Zstd, many...)).ErrorRecords); n != 10_001 {
		t.Errorf("of 30,000 records %d are named", n)
	}
	// Two of three records are later than the year 9999.
	b.createTopic("t", 1, nil)
	raw := sealed(t, batch.None, batch.Record{Timestamp: 0, Key: []byte("k")}, batch.Record{Timestamp: 1, Key: []byte("k")}, batch.Record{Timestamp: 2, Key: []byte("k")})
	binary.BigEndian.PutUint64(raw[27:], uint64(batch.MaxTimestamp))
	binary.BigEndian.PutUint64(raw[35:], uint64(batch.MaxTimestamp))
	p := b.produce("t", 0, valid(raw))
	wantCode(t, "late", p.ErrorCode, kerr.InvalidTimestamp)
	if len(p.ErrorRecords) != 2 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorRecords[1].RelativeOffset != 2 {
		t.Errorf("late records are named as %+v", p.ErrorRecords)
	}
}

func TestHeaderKeysAreNotNull(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	raw := sealed(t, batch.None, batch.Record{Value: []byte("v"), Headers: []batch.RecordHeader{{Key: "", Value: []byte("1")}}})
	at := bytes.LastIndex(raw, []byte{2, 0, 2, '1'}) // one header, empty key, a value of one byte
	raw[at+1] = 1
	p := b.produce("t", 0, valid(raw))
	wantCode(t, "null header key", p.ErrorCode, kerr.InvalidRecord)
}

func TestBombsAreRefusedInLittleMemory(t *testing.T) {
	codecs := []batch.Codec{batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}
	bomb := batch.Record{Value: make([]byte, kafka.DecompressedMax+1)}
	var requests [][]byte
	for _, codec := range codecs { // before the broker starts, which would take the time that this needs for a suspension
		requests = append(requests, frame(produceRequest("t", 0, sealed(t, codec, bomb)), 1))
	}
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"max.message.bytes": "20000000"})
	for i, codec := range codecs {
		req := requests[i]
		w := b.dial()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.send(req)
		resp := w.receive(produceRequest("", 0, nil), 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		runtime.ReadMemStats(&after)
		wantCode(t, codec.String(), resp.ErrorCode, kerr.MessageTooLarge)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > uint64(2*len(req)+16<<20) {
			t.Errorf("%v: a request of %d bytes cost %d", codec, len(req), cost)
		}
	}
	if end := b.end("t", 0); end != 0 {
		t.Errorf("%d records were stored", end)
	}
}

func TestACountThatLiesIsFoundOut(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	many := make([]batch.Record, 100_000)
	raw := sealed(t, batch.Zstd, many...)
	binary.BigEndian.PutUint32(raw[57:], 1)
	binary.BigEndian.PutUint32(raw[23:], 0)
	p := b.produce("t", 0, valid(raw))
	wantCode(t, "count says 1, there are 100,000", p.ErrorCode, kerr.InvalidRecord)
}

func TestTheSizeLimitIsExact(t *testing.T) {
	b := start(t, kafka.Config{})
	const limit = 2000
	b.createTopic("t", 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
	b.createTopic("default", 1, nil)
	ofSize := func(size int) []byte {
		n := size - len(sealed(t, batch.None, value(strings.Repeat("x", 500)))) + 500
		raw := sealed(t, batch.None, value(strings.Repeat("x", n)))
		for len(raw) > size {
			n--
			raw = sealed(t, batch.None, value(strings.Repeat("x", n)))
		}
		if len(raw) != size {
			t.Fatalf("a batch of %d bytes, expected %d", len(raw), size)
		}
		return raw
	}
	for size, want := range map[int]*kerr.Error{limit - 1: nil, limit: nil, limit + 1: kerr.MessageTooLarge} {
		p := b.produce("t", 0, ofSize(size))
		wantCode(t, fmt.Sprintf("%d bytes", size), p.ErrorCode, want)
		if want != nil && !strings.Contains(text(p.ErrorMessage), "2001 bytes; the limit, max.message.bytes of topic \"t\", is 2000") {
			t.Errorf("message %q", text(p.ErrorMessage))
		}
	}
	wantCode(t, "Kafka's default limit", b.produce("default", 0, ofSize(1048588)).ErrorCode, nil)
	wantCode(t, "one more", b.produce("default", 0, ofSize(1048589)).ErrorCode, kerr.MessageTooLarge)
}
