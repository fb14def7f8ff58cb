package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Seal builds one batch from loose records, in their order, at base offset 0 and of no producer.
func Seal(records []Record, codec Codec) ([]byte, error) {
	return Append(nil, records, codec)
}

// Append is Seal that adds the batch to the end of dst. Like append, it returns the longer slice;
// if it fails, dst is as it was.
func Append(dst []byte, records []Record, codec Codec) ([]byte, error) {
	if len(records) == 0 {
		return dst, invalid("it has no records; a batch has at least 1")
	}
	h := Header{
		LeaderEpoch:     -1,
		Attributes:      Attributes(codec),
		LastOffsetDelta: int32(len(records) - 1),
		BaseTimestamp:   records[0].Timestamp,
		MaxTimestamp:    NoTimestamp,
		ProducerID:      -1,
		ProducerEpoch:   -1,
		BaseSequence:    -1,
		Records:         int32(len(records)),
	}
	size := int64(headerLen)
	for i := range records {
		rec := &records[i]
		if rec.Timestamp < NoTimestamp {
			return dst, &RecordError{Record: i, Reason: fmt.Sprintf("its timestamp is %d; the lowest allowed is %d, which means unknown", rec.Timestamp, NoTimestamp)}
		}
		if rec.Timestamp > MaxTimestamp {
			return dst, &RecordError{Record: i, Reason: lateTimestamp(rec.Timestamp), is: ErrTimestamp}
		}
		h.MaxTimestamp = max(h.MaxTimestamp, rec.Timestamp)
		body := int64(bodySize(rec, i, h.BaseTimestamp))
		size += int64(varintSize(body)) + body
		if size > math.MaxInt32 {
			return dst, fmt.Errorf("%w: its first %d records have %d bytes, the format allows %d", ErrTooLarge, i+1, size, math.MaxInt32)
		}
	}
	if codec == None {
		at := len(dst)
		out := append(slices.Grow(dst, int(size)), make([]byte, headerLen)...)
		for i := range records {
			out = appendRecord(out, &records[i], i, h.BaseTimestamp)
		}
		return seal(out, at, h), nil
	}
	return compress(dst, h, codec, math.MaxInt, func(w io.Writer) error {
		window := windows.Get().(*[windowSize]byte)
		defer windows.Put(window)
		buf := window[:0]
		for i := range records {
			buf = appendRecord(buf, &records[i], i, h.BaseTimestamp)
			if len(buf) >= windowSize/2 || i == len(records)-1 {
				if _, err := w.Write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
		return nil
	})
}

// Recompress returns a batch with the same records under another codec, as compression.type of a
// topic asks. All else in the header stays: offsets, timestamps, producer. If raw has this codec
// already, Recompress returns raw itself. It does not check the records: Validate does that. most
// is the limit for the result, in bytes: once it is known to be exceeded, Recompress fails with
// ErrTooLarge.
func Recompress(raw []byte, codec Codec, maxDecompressed, most int) ([]byte, error) {
	h, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	from := h.Attributes.Codec()
	if from == codec {
		return raw, nil
	}
	h.Attributes = h.Attributes&^codecMask | Attributes(codec)
	if codec == None {
		limit := min(maxDecompressed, max(0, most-headerLen))
		// The first pass only finds the size: a buffer that grows by doubling could exceed the
		// limit.
		size, err := decompress(io.Discard, raw, from, limit)
		if err != nil {
			return nil, err
		}
		out := bytes.NewBuffer(make([]byte, headerLen, headerLen+size))
		if _, err := decompress(out, raw, from, limit); err != nil {
			return nil, err
		}
		return seal(out.Bytes(), 0, h), nil
	}
	return compress(nil, h, codec, most, func(w io.Writer) error {
		_, err := decompress(w, raw, from, maxDecompressed)
		return err
	})
}

// decompress writes the records of raw to w, and returns how many bytes they have.
func decompress(w io.Writer, raw []byte, codec Codec, limit int) (int, error) {
	var c cursor
	c.start(raw, codec, limit, false)
	defer c.close()
	for c.err == nil {
		if c.pos == len(c.win) {
			if c.src == nil {
				break
			}
			c.fill(1)
		}
		n, err := w.Write(c.win[c.pos:])
		c.pos += n
		if err != nil {
			return 0, err
		}
	}
	return c.at(), c.err
}

// limited is a buffer with a limit: the field most, in bytes.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.most-l.Len() {
		return 0, fmt.Errorf("%w: recompressed, it has more than the limit, %d bytes", ErrTooLarge, l.most)
	}
	return l.Buffer.Write(p)
}

// compress appends to dst a batch whose records are what body writes. most is the limit for dst and
// the batch together, in bytes.
func compress(dst []byte, h Header, codec Codec, most int, body func(io.Writer) error) ([]byte, error) {
	if codec <= None || codec > Zstd {
		return dst, fmt.Errorf("%w: its number is %d; 0 to %d are supported", ErrUnsupportedCodec, codec, Zstd)
	}
	at := len(dst)
	out := &limited{*bytes.NewBuffer(append(dst, make([]byte, headerLen)...)), most}
	w := encoders[codec].Get().(encoder)
	w.Reset(out)
	err := body(w)
	if err == nil {
		err = w.Close()
	}
	w.Reset(nil)
	encoders[codec].Put(w)
	if err != nil {
		return dst, err
	}
	return seal(out.Bytes(), at, h), nil
}

// seal writes the header of the batch raw[at:].
func seal(raw []byte, at int, h Header) []byte {
	b := raw[at:]
	h.Length = int32(len(b) - frameLen)
	h.encode(b)
	stampCRC(b)
	return raw
}

// SealedSize is how many bytes a batch of this record alone has when it is not compressed. A batch
// of several records has at most the sum of their sizes.
func SealedSize(rec *Record) int {
	body := bodySize(rec, 0, rec.Timestamp)
	return headerLen + varintSize(int64(body)) + body
}

func appendRecord(dst []byte, rec *Record, index int, baseTimestamp int64) []byte {
	dst = binary.AppendVarint(dst, int64(bodySize(rec, index, baseTimestamp)))
	dst = append(dst, 0) // attributes; Kafka has none yet
	dst = binary.AppendVarint(dst, rec.Timestamp-baseTimestamp)
	dst = binary.AppendVarint(dst, int64(index))
	dst = appendField(dst, rec.Key)
	dst = appendField(dst, rec.Value)
	dst = binary.AppendVarint(dst, int64(len(rec.Headers)))
	for i := range rec.Headers {
		header := &rec.Headers[i]
		dst = binary.AppendVarint(dst, int64(len(header.Key)))
		dst = append(dst, header.Key...)
		dst = appendField(dst, header.Value)
	}
	return dst
}

func appendField(dst, field []byte) []byte {
	if field == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(field)))
	return append(dst, field...)
}

// bodySize is what a record's length field says: all but that field.
func bodySize(rec *Record, index int, baseTimestamp int64) int {
	n := 1 + varintSize(rec.Timestamp-baseTimestamp) + varintSize(int64(index)) + fieldSize(rec.Key) + fieldSize(rec.Value) + varintSize(int64(len(rec.Headers)))
	for i := range rec.Headers {
		header := &rec.Headers[i]
		n += varintSize(int64(len(header.Key))) + len(header.Key) + fieldSize(header.Value)
	}
	return n
}

func fieldSize(field []byte) int {
	if field == nil {
		return 1
	}
	return varintSize(int64(len(field))) + len(field)
}

// varintSize is how many bytes n takes, zigzag and seven bits in each.
func varintSize(n int64) int {
	zigzag := uint64(n)<<1 ^ uint64(n>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
