package batch

import (
	"fmt"
	"io"
	"math"
)

// Compacted describes a batch that compaction writes: some of the records of earlier batches, with
// their offsets.
type Compacted struct {
	Base, Last int64    // the offsets that it takes, including both
	Records    []Record // in order, with their offsets; there may be none
	Codec      Codec
	AppendTime bool  // every record has the timestamp MaxTimestamp, which the broker set
	Own        bool  // see Attributes.Own
	Horizon    int64 // when its tombstones may be deleted, in milliseconds since the Unix epoch; 0: not decided, or it has none
	EmptyTime  int64 // MaxTimestamp of a batch without records
}

// Seal encodes the batch, at base offset 0 and without a producer: the log keeps the state of
// producers apart from the records.
func (b Compacted) Seal() ([]byte, error) {
	h := Header{
		LeaderEpoch: -1, LastOffsetDelta: int32(b.Last - b.Base),
		BaseTimestamp: b.EmptyTime, MaxTimestamp: b.EmptyTime,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: int32(len(b.Records)),
	}
	codec := b.Codec
	if len(b.Records) == 0 {
		codec = None
	} else {
		h.BaseTimestamp, h.MaxTimestamp = b.Records[0].Timestamp, NoTimestamp
	}
	if b.Horizon > 0 {
		h.BaseTimestamp, h.Attributes = b.Horizon, h.Attributes|horizonFlag
	}
	if b.AppendTime {
		h.Attributes |= appendTimeFlag
	}
	if b.Own {
		h.Attributes |= ownFlag
	}
	h.Attributes |= Attributes(codec)
	for i := range b.Records {
		rec := &b.Records[i]
		if rec.Offset < b.Base || rec.Offset > b.Last || i > 0 && rec.Offset <= b.Records[i-1].Offset {
			panic(fmt.Sprintf("a compacted batch of the offsets %d to %d cannot have the offset %d at index %d", b.Base, b.Last, rec.Offset, i))
		}
		h.MaxTimestamp = max(h.MaxTimestamp, rec.Timestamp)
	}
	if codec == None {
		out := make([]byte, headerLen)
		for i := range b.Records {
			out = appendRecord(out, &b.Records[i], int(b.Records[i].Offset-b.Base), h.BaseTimestamp)
		}
		if len(out) > math.MaxInt32 {
			return nil, fmt.Errorf("%w: it has %d bytes", ErrTooLarge, len(out))
		}
		return seal(out, 0, h), nil
	}
	return compress(nil, h, codec, math.MaxInt32, func(w io.Writer) error {
		var buf []byte
		for i := range b.Records {
			buf = appendRecord(buf[:0], &b.Records[i], int(b.Records[i].Offset-b.Base), h.BaseTimestamp)
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
		return nil
	})
}
