package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog/batch"
)

// Where the header's fields are, once more and by hand, so that a slip in the code is not a slip
// here.
const (
	atLength, atMagic, atCRC, atAttributes, atLastOffsetDelta = 8, 16, 17, 21, 23
	atBaseTimestamp, atMaxTimestamp, atProducerID, atRecords  = 27, 35, 43, 57
)

// craft builds a batch of any content: what a hostile client can send with a right length and CRC.
func craft(codec batch.Codec, count int32, records []byte) []byte {
	raw := make([]byte, 61, 61+len(records))
	raw = append(raw, records...)
	binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-12))
	raw[atMagic] = 2
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(codec))
	binary.BigEndian.PutUint32(raw[atLastOffsetDelta:], uint32(count-1))
	binary.BigEndian.PutUint64(raw[atProducerID:], math.MaxUint64)
	binary.BigEndian.PutUint32(raw[atRecords:], uint32(count))
	return stamp(raw)
}

func stamp(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// record builds one record of these fields, behind their length.
func record(fields ...[]byte) []byte {
	body := bytes.Join(fields, nil)
	return append(varint(int64(len(body))), body...)
}

func varint(n int64) []byte { return binary.AppendVarint(nil, n) }

// plain is a good record: attributes, timestamp delta, offset delta, key, value, headers.
func plain(index int64) []byte {
	return record([]byte{0}, varint(0), varint(index), varint(1), []byte("k"), varint(-1), varint(0))
}

func join(pieces ...[]byte) []byte { return bytes.Join(pieces, nil) }

// check is Check and, if that is content, Validate.
func check(raw []byte, limit int) error {
	h, err := batch.Check(raw)
	if err != nil {
		return err
	}
	return second(batch.Validate(raw, h, limit))
}

func TestBadHeadersAreRefused(t *testing.T) {
	patch := func(at int, with ...byte) []byte {
		raw := seal(t, sample, batch.Zstd)
		copy(raw[at:], with)
		if at > atCRC {
			stamp(raw)
		}
		return raw
	}
	count := func(n int32, delta int32) []byte {
		raw := craft(batch.None, n, plain(0))
		binary.BigEndian.PutUint32(raw[atLastOffsetDelta:], uint32(delta))
		return stamp(raw)
	}
	for _, bad := range []struct {
		name string
		raw  []byte
		want error
		text string
	}{
		{"nothing", nil, batch.ErrCorrupt, "0 bytes; a batch header has 61"},
		{"half a header", make([]byte, 60), batch.ErrCorrupt, "60 bytes"},
		{"length short by one", patch(atLength+3, 0), batch.ErrCorrupt, "its length field says"},
		{"negative length", patch(atLength, 0xff), batch.ErrCorrupt, "its length field says -"},
		{"a byte too many", append(seal(t, sample, batch.None), 0), batch.ErrCorrupt, "its length field says"},
		{"magic 0", patch(atMagic, 0), batch.ErrInvalidRecord, "magic is 0"},
		{"magic 1", patch(atMagic, 1), batch.ErrInvalidRecord, "Kafka 0.11"},
		{"magic 3", patch(atMagic, 3), batch.ErrCorrupt, "magic is 3"},
		{"wrong CRC", patch(atCRC, 1, 2, 3, 4), batch.ErrCorrupt, "its CRC field says 0x01020304"},
		{"codec 5", patch(atAttributes, 0, 5), batch.ErrUnsupportedCodec, "number is 5; 0 to 4"},
		{"codec 7", patch(atAttributes, 0, 7), batch.ErrUnsupportedCodec, "number is 7"},
		{"count 0", count(0, -1), batch.ErrInvalidRecord, "says 0 records"},
		{"count -1", count(-1, -2), batch.ErrInvalidRecord, "says -1 records"},
		{"count 2^31-1", count(math.MaxInt32, math.MaxInt32-1), batch.ErrInvalidRecord, "says 2147483647 records, in 8 bytes"},
		{"last offset delta", count(1, 1), batch.ErrInvalidRecord, "last offset delta is 1"},
		{"base timestamp", patch(atBaseTimestamp, 0xff, 0, 0), batch.ErrInvalidRecord, "base timestamp is -"},
		{"max timestamp", patch(atMaxTimestamp, 0xff, 0, 0), batch.ErrInvalidRecord, "max timestamp -"},
		{"sequence", patch(atProducerID, 0, 0, 0, 0, 0, 0, 0, 9), batch.ErrInvalidRecord, "producer, 9, gave it the sequence number -1"},
	} {
		err := check(bad.raw, limit)
		if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.text) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
}

func TestAttributesAreReported(t *testing.T) {
	raw := craft(batch.None, 1, plain(0))
	raw[atAttributes+1] = 1<<3 | 1<<4 | 1<<5
	h, err := batch.Check(stamp(raw))
	if err != nil || !h.Attributes.AppendTime() || !h.Attributes.Transactional() || !h.Attributes.Control() {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := batch.Check(craft(batch.None, 1, plain(0))); err != nil || h.Attributes.AppendTime() || h.Attributes.Transactional() || h.Attributes.Control() {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestBadRecordsAreRefusedByIndex(t *testing.T) {
	zero, null := varint(0), varint(-1)
	for _, bad := range []struct {
		name    string
		count   int32
		records []byte
		index   int
		text    string
	}{
		{"counts one too few", 1, join(plain(0), plain(1)), batch.WholeBatch, "says 1 records, but more bytes follow"},
		{"counts one too many", 2, join(plain(0), make([]byte, 6)), 1, "0 bytes; a record has at least 6"},
		{"ends inside a length", 2, join(plain(0), []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80}), 1, "does not end within 5 bytes"},
		{"cut short", 2, join(plain(0), plain(1)[:7]), 1, ""},
		{"record longer than the data", 1, join(varint(100), plain(0)), 0, "100 bytes, but only 8 follow"},
		{"record of 2 GiB", 1, join(varint(math.MaxInt32), plain(0)), 0, "2147483647 bytes, but only 8 follow"},
		{"length of more than 32 bits", 1, join(varint(math.MaxInt32+1), plain(0)), 0, "32 bits"},
		{"negative length", 1, join(varint(-8), plain(0)), 0, "-8 bytes"},
		{"length too short for its fields", 2, join(plain(0), varint(6), plain(1)[1:]), 1, ""},
		{"length too long for its fields", 1, record([]byte{0}, zero, zero, null, null, zero, []byte("more")), 0, "4 bytes before the end"},
		{"offset delta repeats", 2, join(plain(0), plain(0)), 1, "offset delta is 0"},
		{"offset delta skips", 3, join(plain(0), plain(1), plain(3)), 2, "offset delta is 3"},
		{"key length -2", 1, record([]byte{0}, zero, zero, varint(-2), null, zero), 0, "length of its key is -2"},
		{"value length -2", 1, record([]byte{0}, zero, zero, null, varint(-2), zero), 0, "length of its value is -2"},
		{"key past the record", 2, join(plain(0), record([]byte{0}, zero, varint(1), varint(50), null, zero), plain(2)), 1, "its key has 50 bytes"},
		{"value of 2 GiB", 1, record([]byte{0}, zero, zero, null, varint(math.MaxInt32), zero), 0, "its value has 2147483647 bytes"},
		{"header key null", 1, record([]byte{0}, zero, zero, null, null, varint(1), null, null), 0, "length of its header key is -1"},
		{"header value length -2", 1, record([]byte{0}, zero, zero, null, null, varint(1), zero, varint(-2)), 0, "length of its header value is -2"},
		{"2^31-1 headers", 1, record([]byte{0}, zero, zero, null, null, varint(math.MaxInt32), zero, null), 0, "it has 2147483647 headers, in 2 bytes"},
		{"-1 headers", 1, record([]byte{0}, zero, zero, null, null, null), 0, "it has -1 headers"},
		{"timestamp below -1", 1, record([]byte{0}, varint(-2), zero, null, null, zero), 0, "timestamp is 0 -2"},
		{"timestamp of 11 bytes", 1, record([]byte{0}, bytes.Repeat([]byte{0xff}, 10), []byte{1}, zero, null, null, zero), 0, "10 bytes"},
		{"timestamp of 65 bits", 1, record([]byte{0}, bytes.Repeat([]byte{0xff}, 9), []byte{2}, zero, null, null, zero), 0, "64 bits"},
	} {
		for _, codec := range codecs {
			records := bad.records
			if codec != batch.None {
				if strings.Contains(bad.text, "but only 8 follow") {
					continue // how many bytes are there is not known beforehand: TestBombsAreRefused
				}
				records = compressed(t, codec, records)
			}
			raw := craft(codec, bad.count, records)
			err := check(raw, limit)
			var at *batch.RecordError
			if !errors.As(err, &at) || at.Record != bad.index || !strings.Contains(err.Error(), bad.text) || !errors.Is(err, batch.ErrInvalidRecord) {
				t.Errorf("%s, %v: %v", bad.name, codec, err)
			}
			for _, err = range batch.Records(raw, limit) {
			}
			if !errors.Is(err, batch.ErrInvalidRecord) && !strings.HasPrefix(bad.name, "timestamp") {
				t.Errorf("%s, %v: Records ended with %v", bad.name, codec, err)
			}
		}
	}
}

func TestTimestampsThatWrapAroundAreRefused(t *testing.T) {
	for base, delta := range map[int64]int64{-1: math.MinInt64, math.MaxInt64: 1, math.MaxInt64 - 1: math.MaxInt64} {
		raw := craft(batch.None, 1, record([]byte{0}, varint(delta), varint(0), varint(-1), varint(-1), varint(0)))
		binary.BigEndian.PutUint64(raw[atBaseTimestamp:], uint64(base))
		if err := check(stamp(raw), limit); !errors.Is(err, batch.ErrInvalidRecord) || !strings.Contains(err.Error(), "its timestamp is") {
			t.Errorf("%d %+d: %v", base, delta, err)
		}
	}
}

// compressed returns the records as they stand in a batch of the codec.
func compressed(t testing.TB, codec batch.Codec, records []byte) []byte {
	t.Helper()
	raw, err := batch.Recompress(craft(batch.None, 1, append(records, make([]byte, max(0, 7-len(records)))...)), codec, math.MaxInt32, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	return raw[61:]
}

func TestBrokenCompressionIsRefused(t *testing.T) {
	for _, codec := range codecs[1:] {
		good := compressed(t, codec, plain(0))
		for name, data := range map[string][]byte{
			"nothing":        {},
			"noise":          []byte("this is not compressed at all"),
			"cut short":      good[:len(good)-1],
			"of another one": compressed(t, codecs[1:][codec%4], plain(0)),
		} {
			err := check(craft(codec, 1, data), limit)
			if !errors.Is(err, batch.ErrInvalidRecord) && !errors.Is(err, batch.ErrTooLarge) {
				t.Errorf("%s, %v: %v", name, codec, err)
			}
		}
	}
}

func TestSealRefusesWhatNobodyCouldRead(t *testing.T) {
	if _, err := batch.Seal(nil, batch.None); !errors.Is(err, batch.ErrInvalidRecord) {
		t.Errorf("no records: %v", err)
	}
	var at *batch.RecordError
	if _, err := batch.Seal([]batch.Record{{}, {Timestamp: -2}}, batch.None); !errors.As(err, &at) || at.Record != 1 {
		t.Errorf("timestamp -2: %v", err)
	}
	if _, err := batch.Seal(sample, 5); !errors.Is(err, batch.ErrUnsupportedCodec) {
		t.Errorf("codec 5: %v", err)
	}
	if _, err := batch.Recompress(seal(t, sample, batch.Gzip), -1, limit, math.MaxInt); !errors.Is(err, batch.ErrUnsupportedCodec) {
		t.Errorf("codec -1: %v", err)
	}
}
