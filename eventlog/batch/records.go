package batch

import (
	"iter"
	"unsafe"
)

// Record is one record. A nil Key or Value is Kafka's null, which is not the same as an empty one.
type Record struct {
	Offset    int64 // its place in the log; Seal does not read it
	Timestamp int64 // milliseconds since the Unix epoch; NoTimestamp when unknown
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. Keys may repeat, and their order is kept.
type RecordHeader struct {
	Key   string
	Value []byte // nil is null
}

// DecodedMax bounds the memory that the records of one batch take once they are decoded, beside
// their bytes: a compressed byte may stand for many records, or for many headers. It has space for
// 1,000,000 records with a header each; librdkafka, whose batch.num.messages goes that far, puts
// 10,000 into a batch by default. Kafka bounds headers by the size of the record alone
// (DefaultRecord.readFrom).
const DecodedMax = 128 << 20

const (
	recordMemory = int(unsafe.Sizeof(Record{}))
	headerMemory = int(unsafe.Sizeof(RecordHeader{}))
)

// DecodedSize is how much of DecodedMax the record takes.
func (r *Record) DecodedSize() int { return recordMemory + len(r.Headers)*headerMemory }

// Records decodes a batch, for readers that do not use the Kafka protocol. It ends with the first
// error. Limits are those of Validate: a batch can have been stored before these limits existed.
// What it yields may be kept; keys and values of an uncompressed batch share raw's memory. Do not
// wait for other goroutines in the loop: they may wait for the part of decoderMemory that this
// decoder holds.
func Records(raw []byte, maxDecompressed int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, err := Parse(raw)
		if err != nil {
			yield(Record{}, err)
			return
		}
		var c cursor
		c.start(raw, h.Attributes.Codec(), maxDecompressed, true)
		defer c.close()
		c.memory = DecodedMax
		c.allowGaps(h)
		for i := range int(h.Records) {
			var rec Record
			if !c.next(i, &rec) {
				yield(Record{}, c.err)
				return
			}
			h.place(&rec)
			if !yield(rec, nil) {
				return
			}
		}
		if err := c.finish(int(h.Records)); err != nil {
			yield(Record{}, err)
		}
	}
}

// place turns a record's deltas into its offset and timestamp.
func (h *Header) place(rec *Record) {
	rec.Offset += h.BaseOffset
	if h.Attributes.AppendTime() {
		rec.Timestamp = h.MaxTimestamp
		return
	}
	rec.Timestamp += h.BaseTimestamp
}

// Moment is where and when a record is.
type Moment struct {
	Offset    int64
	Timestamp int64
}

// FirstSince finds the first record of a batch whose timestamp is not before t, as ListOffsets by
// time asks. base is where the batch begins in the log, whatever its own bytes say; records below
// from are skipped.
func FirstSince(raw []byte, base, from, t int64, maxDecompressed int) (m Moment, found bool, err error) {
	err = eachMoment(raw, base, from, maxDecompressed, func(at Moment) bool {
		m, found = at, at.Timestamp >= t
		return !found
	})
	if !found || err != nil {
		return Moment{}, false, err
	}
	return m, true, nil
}

// Newest finds the first record of a batch that has its highest timestamp, as ListOffsets asks with
// timestamp -3. base and from are as for FirstSince; found is false if all records are below from.
func Newest(raw []byte, base, from int64, maxDecompressed int) (newest Moment, found bool, err error) {
	err = eachMoment(raw, base, from, maxDecompressed, func(at Moment) bool {
		if !found || at.Timestamp > newest.Timestamp {
			newest, found = at, true
		}
		return true
	})
	return newest, found && err == nil, err
}

// eachMoment calls f for each record from an offset on, until f returns false.
func eachMoment(raw []byte, base, from int64, maxDecompressed int, f func(Moment) bool) error {
	h, err := Parse(raw)
	if err != nil {
		return err
	}
	h.BaseOffset = base
	if h.Attributes.AppendTime() { // all records have the same timestamp
		if at := max(base, from); at <= base+int64(h.LastOffsetDelta) && h.Records > 0 {
			f(Moment{at, h.MaxTimestamp})
		}
		return nil
	}
	var c cursor
	c.start(raw, h.Attributes.Codec(), maxDecompressed, false)
	defer c.close()
	c.allowGaps(h)
	var rec Record
	for i := range int(h.Records) {
		if !c.next(i, &rec) {
			return c.err
		}
		h.place(&rec)
		if rec.Offset >= from && !f(Moment{rec.Offset, rec.Timestamp}) {
			return nil
		}
	}
	return c.finish(int(h.Records))
}
