package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"

	"github.com/weir-log/weir/eventlog/batch"
)

// slack is what may be allocated besides the limit on decompressed data.
const slack = 16 << 20

// allocated runs f and returns how many bytes it allocated, garbage included: its peak is not above
// that.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// gigabyte is a stream that decompresses to 1 GiB: 1024 members, frames or blocks of 1 MiB.
func gigabyte(t *testing.T, codec batch.Codec, first []byte) []byte {
	piece := compressed(t, codec, append(first, make([]byte, 1<<20-len(first))...))
	if codec == batch.Snappy { // one header, then blocks
		return append(piece, bytes.Repeat(piece[16:], 1023)...)
	}
	return bytes.Repeat(piece, 1024)
}

func TestBombsAreRefused(t *testing.T) {
	// A record that claims its gigabyte, and one that hides it behind a count of 1 and a good first
	// record.
	huge := record([]byte{0}, varint(0), varint(0), varint(-1), varint(1<<30))
	huge = append(varint(1<<30+11), huge[1:]...)
	for _, codec := range codecs[1:] {
		for name, bomb := range map[string]struct {
			raw  []byte
			want error
		}{
			"a record of 1 GiB":          {craft(codec, 1, gigabyte(t, codec, huge)), batch.ErrTooLarge},
			"1 GiB behind one record":    {craft(codec, 1, gigabyte(t, codec, plain(0))), batch.ErrInvalidRecord},
			"1 GiB of records of 0 byte": {craft(codec, math.MaxInt32, gigabyte(t, codec, nil)), batch.ErrInvalidRecord},
		} {
			run := func(verb string, f func() error) {
				var err error
				if n := allocated(func() { err = f() }); n > limit+slack {
					t.Errorf("%s, %v: %s allocated %d bytes", name, codec, verb, n)
				}
				if !errors.Is(err, bomb.want) {
					t.Errorf("%s, %v: %s: %v", name, codec, verb, err)
				}
			}
			run("Validate", func() error { return check(bomb.raw, limit) })
			run("Records", func() (err error) {
				for _, err = range batch.Records(bomb.raw, limit) {
				}
				return err
			})
			bomb.want = batch.ErrTooLarge
			run("Recompress", func() error {
				_, err := batch.Recompress(bomb.raw, batch.None, limit, math.MaxInt)
				return err
			})
		}
	}
}

// TestManyRecordsBehindACountOfOne sends 10^7 records as one.
func TestManyRecordsBehindACountOfOne(t *testing.T) {
	for _, codec := range []batch.Codec{batch.Gzip, batch.LZ4, batch.Zstd} {
		piece := compressed(t, codec, bytes.Repeat(plain(0), 10_000))
		raw := craft(codec, 1, bytes.Repeat(piece, 1000))
		var err error
		if n := allocated(func() { err = check(raw, batch.DefaultMaxDecompressed) }); n > slack {
			t.Errorf("%v: allocated %d bytes", codec, n)
		}
		if !errors.Is(err, batch.ErrInvalidRecord) || !strings.Contains(err.Error(), "says 1 records, but more bytes follow") {
			t.Errorf("%v: %v", codec, err)
		}
	}
}

func TestLimitIsExact(t *testing.T) {
	records := []batch.Record{{Value: make([]byte, 100_000)}, {Value: make([]byte, 100_000)}}
	size := len(seal(t, records, batch.None)) - 61
	for _, codec := range codecs[1:] {
		raw := seal(t, records, codec)
		if err := check(raw, size); err != nil {
			t.Errorf("%v, at the limit: %v", codec, err)
		}
		if _, err := batch.Recompress(raw, batch.None, size, math.MaxInt); err != nil {
			t.Errorf("%v, recompressed at the limit: %v", codec, err)
		}
		for verb, err := range map[string]error{"Validate": check(raw, size-1), "Recompress": second(batch.Recompress(raw, batch.None, size-1, math.MaxInt))} {
			if !errors.Is(err, batch.ErrTooLarge) || !strings.Contains(err.Error(), strconv.Itoa(size-1)) {
				t.Errorf("%v, %s one below (limit %d): %v", codec, verb, size-1, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestFalseSizesCostNothing(t *testing.T) {
	for _, bad := range []struct {
		name  string
		codec batch.Codec
		data  []byte
		want  error
	}{
		{"zstd window of 2 GiB", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0}, batch.ErrTooLarge},
		{"zstd window of 128 MiB, empty", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 1, 0, 0}, batch.ErrInvalidRecord},
		{"zstd window of 128 MiB behind another frame", batch.Zstd, append(compressed(t, batch.Zstd, plain(0)), 0x28, 0xb5, 0x2f, 0xfd, 0x00, 17<<3, 1, 0, 0), nil},
		{"zstd frame of 2^19 bytes in none", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 8, 0, 1, 0, 0}, batch.ErrInvalidRecord},
		{"zstd block past the end", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0, 0xff, 0xff}, batch.ErrInvalidRecord},
		{"zstd frame of 2^40 bytes", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0}, batch.ErrTooLarge},
		{"raw snappy block of 4 GiB", batch.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, batch.ErrTooLarge},
		{"raw snappy block one over the limit", batch.Snappy, append(binary.AppendUvarint(nil, limit+1), 0), batch.ErrTooLarge},
		{"raw snappy block at the limit, empty", batch.Snappy, append(binary.AppendUvarint(nil, limit), 0), batch.ErrInvalidRecord},
		{"framed snappy block of 4 GiB", batch.Snappy, append([]byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x06"), 0xff, 0xff, 0xff, 0xff, 0x0f, 0), batch.ErrTooLarge},
		{"framed snappy block past the end", batch.Snappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\x00"), batch.ErrInvalidRecord},
		{"framed snappy cut in a length", batch.Snappy, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00"), batch.ErrInvalidRecord},
	} {
		var err error
		if n := allocated(func() { err = check(craft(bad.codec, 1, bad.data), limit) }); n > limit+slack {
			t.Errorf("%s: allocated %d bytes", bad.name, n)
		}
		if !errors.Is(err, bad.want) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
}

// TestFalseContentSizeOfLZ4CostsNothing: the size in a frame's header is a hint at most.
func TestFalseContentSizeOfLZ4CostsNothing(t *testing.T) {
	var data bytes.Buffer
	w := lz4.NewWriter(&data)
	if err := w.Apply(lz4.SizeOption(1 << 60)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain(0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Fatal("the writer takes a false size for a true one")
	}
	var err error
	if n := allocated(func() { err = check(craft(batch.LZ4, 1, data.Bytes()), limit) }); n > limit+slack {
		t.Errorf("allocated %d bytes", n)
	}
	if err != nil && !errors.Is(err, batch.ErrInvalidRecord) {
		t.Error(err)
	}
}

// TestWideWindowsOfLittleDataAreRead: Java's zstd announces its window before it knows how little
// comes.
func TestWideWindowsOfLittleDataAreRead(t *testing.T) {
	for log, most := range map[byte]uint64{17: slack, 23: slack, 24: 1 << 20, 27: 1 << 20} {
		frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3}
		frame = append(frame, byte(8<<3|1), 0, 0) // the last block, 8 bytes, raw
		frame = append(frame, plain(0)...)
		raw := craft(batch.Zstd, 1, frame)
		before := bytes.Clone(raw)
		var err error
		if n := allocated(func() { err = check(raw, 100) }); n > most || err != nil {
			t.Errorf("window of 2^%d bytes: %d bytes allocated, %v", log, n, err)
		}
		if !bytes.Equal(raw, before) {
			t.Errorf("window of 2^%d bytes: the batch was changed", log)
		}
		if err := check(raw, 7); !errors.Is(err, batch.ErrTooLarge) {
			t.Errorf("window of 2^%d bytes, a byte over the limit: %v", log, err)
		}
	}
}

// TestZstdFramesThatKnowTheirSizeAreHeldToIt: a frame in a single segment announces its size, which
// is its window, too.
func TestZstdFramesThatKnowTheirSizeAreHeldToIt(t *testing.T) {
	frame := func(size uint32, blocks int) []byte {
		f := binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, size)
		for range blocks {
			f = append(f, 0x02, 0x00, 0x10, 0) // 1<<17 bytes, run-length encoded
		}
		return append(f, 1, 0, 0)
	}
	for _, c := range []struct {
		size   uint32
		blocks int
		limit  int
		want   error
		text   string
	}{
		{2 << 20, 16, 2 << 20, nil, ""},
		{2 << 20, 16, 2<<20 - 1, batch.ErrTooLarge, "it decompresses to 2097152 bytes, the limit is 2097151"},
		{90 << 20, 16, 100 << 20, batch.ErrInvalidRecord, "says it decompresses to 94371840 bytes, but its blocks have at most 2097152"},
		{1 << 20, 16, 100 << 20, batch.ErrInvalidRecord, "cannot be decompressed"},
	} {
		var err error
		n := allocated(func() {
			_, err = batch.Recompress(craft(batch.Zstd, 1, frame(c.size, c.blocks)), batch.Snappy, c.limit, math.MaxInt)
		})
		if n > slack {
			t.Errorf("%d bytes in %d blocks: %d bytes allocated", c.size, c.blocks, n)
		}
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%d bytes in %d blocks: %v", c.size, c.blocks, err)
		}
	}
}

// TestWideWindowsOfMuchDataAreBounded: one record of 64 MiB, in blocks of 128 KiB that repeat one
// byte.
func TestWideWindowsOfMuchDataAreBounded(t *testing.T) {
	const blocks, block = 512, 1 << 17
	value := varint(blocks*block - 1) // and one byte for the count of headers
	head := join([]byte{0}, varint(0), varint(0), varint(-1), value)
	head = join(varint(int64(len(head)+blocks*block)), head)
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, byte(len(head) << 3), 0, 0}
	frame = append(frame, head...)
	for range blocks {
		frame = append(frame, 0x02, 0x00, 0x10, 0) // run-length encoded
	}
	raw := craft(batch.Zstd, 1, append(frame, 1, 0, 0))
	size := len(head) + blocks*block
	for limit, want := range map[int]error{1000: batch.ErrTooLarge, 32 << 20: batch.ErrTooLarge, size - 1: batch.ErrTooLarge, size: nil} {
		var err error
		if n := allocated(func() { err = check(raw, limit) }); n > uint64(limit+slack) {
			t.Errorf("limit %d: Validate allocated %d bytes", limit, n)
		}
		if !errors.Is(err, want) {
			t.Errorf("limit %d: Validate: %v", limit, err)
		}
		if _, err := batch.Recompress(raw, batch.Snappy, limit, math.MaxInt); !errors.Is(err, want) {
			t.Errorf("limit %d: Recompress: %v", limit, err)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	raw := filled(t, 100, batch.None)
	h, err := batch.Check(raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"Check":    func() { _, err = batch.Check(raw) },
		"Parse":    func() { _, err = batch.Parse(raw) },
		"Patch":    func() { batch.Patch(raw, 1, 2) },
		"Validate": func() { _, err = batch.Validate(raw, h, limit) },
		"Newest":   func() { _, _, err = batch.Newest(raw, 0, 0, limit) },
		"Split": func() {
			for _, err = range batch.Split(raw) {
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}

// manyHeaders is a record of so many headers, each of which has two bytes: of an empty key and an
// empty value.
func manyHeaders(count int) []byte {
	return record([]byte{0}, varint(0), varint(0), varint(-1), varint(-1), varint(int64(count)), make([]byte, 2*count))
}

// TestRecordsAndHeadersOfNoBytesAreBounded: decoded, a header of two bytes takes 40, and a record
// of seven takes 88.
func TestRecordsAndHeadersOfNoBytesAreBounded(t *testing.T) {
	records := func(count int) (raw []byte) {
		for i := range count {
			raw = append(raw, record([]byte{0}, varint(0), varint(int64(i)), varint(-1), varint(-1), varint(0))...)
		}
		return raw
	}
	const tooManyHeaders, tooManyRecords = batch.DecodedMax/40 + 1, batch.DecodedMax/88 + 1
	one, all := manyHeaders(tooManyHeaders), records(tooManyRecords)
	for _, codec := range codecs {
		bombs := map[string][]byte{"headers": craft(codec, 1, compressedUnless(t, codec, one))}
		if codec == batch.Zstd {
			bombs["records"] = craft(codec, tooManyRecords, compressedUnless(t, codec, all))
		}
		for name, raw := range bombs {
			var err error
			if n := allocated(func() { err = check(raw, batch.DefaultMaxDecompressed) }); n > slack {
				t.Errorf("%s, %v: Validate allocated %d bytes", name, codec, n)
			}
			if !errors.Is(err, batch.ErrDecodedTooLarge) || !errors.Is(err, batch.ErrTooLarge) {
				t.Errorf("%s, %v: Validate of %d bytes: %v", name, codec, len(raw), err)
			}
			n := allocated(func() {
				for _, err = range batch.Records(raw, batch.DefaultMaxDecompressed) {
				}
			})
			if n > batch.DecodedMax+slack {
				t.Errorf("%s, %v: Records allocated %d bytes for %d", name, codec, n, len(raw))
			}
			if !errors.Is(err, batch.ErrDecodedTooLarge) {
				t.Errorf("%s, %v: Records of %d bytes: %v", name, codec, len(raw), err)
			}
		}
	}
}

func compressedUnless(t *testing.T, codec batch.Codec, records []byte) []byte {
	if codec == batch.None {
		return records
	}
	return compressed(t, codec, records)
}

// TestBatchesOfTheUsualSizeAreNeverTooLargeToDecode: as many records, or headers, as fit into
// Kafka's default for max.message.bytes, and as many records as a client can be made to put into a
// batch.
func TestBatchesOfTheUsualSizeAreNeverTooLargeToDecode(t *testing.T) {
	const usual = 1048588 - 61
	smallest := make([]batch.Record, usual/recordAtLeast)
	most := make([]batch.Record, 1_000_000)
	for i := range most {
		most[i] = batch.Record{Key: []byte("k"), Value: []byte("value"), Headers: []batch.RecordHeader{{Key: "traceparent", Value: []byte("v")}}}
	}
	for name, raw := range map[string][]byte{
		"records":           seal(t, smallest, batch.None),
		"headers":           craft(batch.None, 1, manyHeaders(usual/2-10)),
		"1,000,000 records": seal(t, most, batch.Zstd),
	} {
		if err := check(raw, batch.DefaultMaxDecompressed); err != nil {
			t.Errorf("%s: Validate: %v", name, err)
		}
		for _, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
			if err != nil {
				t.Fatalf("%s: Records: %v", name, err)
			}
		}
	}
}

// recordAtLeast is what a record of no bytes takes in a batch.
const recordAtLeast = 7
