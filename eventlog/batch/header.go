package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// Header is what stands before the records of a batch.
type Header struct {
	BaseOffset      int64
	Length          int32 // of the batch without its first 12 bytes
	LeaderEpoch     int32
	CRC             uint32 // Castagnoli, from the attributes to the end
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   int64 // milliseconds since the Unix epoch; NoTimestamp when unknown
	MaxTimestamp    int64
	ProducerID      int64 // -1 unless the producer is idempotent
	ProducerEpoch   int16
	BaseSequence    int32
	Records         int32
}

// NoTimestamp is the timestamp of a record that carries none.
const NoTimestamp int64 = -1

// MaxTimestamp is the latest timestamp that new records may have, the end of the year 9999: RFC
// 3339 has no later one, so the doors that write times in this format could not show it.
const MaxTimestamp int64 = 253402300799999

// Attributes are the flags of a batch.
type Attributes int16

const (
	codecMask         Attributes = 0b111
	appendTimeFlag    Attributes = 1 << 3
	transactionalFlag Attributes = 1 << 4
	controlFlag       Attributes = 1 << 5
	horizonFlag       Attributes = 1 << 6
	ownFlag           Attributes = 1 << 14 // Kafka does not use it, and clients do not look at it
)

// Codec returns how the records are compressed.
func (a Attributes) Codec() Codec { return Codec(a & codecMask) }

// AppendTime reports whether every record's timestamp is the batch's MaxTimestamp, which the broker
// set.
func (a Attributes) AppendTime() bool { return a&appendTimeFlag != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (a Attributes) Transactional() bool { return a&transactionalFlag != 0 }

// Control reports whether the records are a broker's own markers, such as the end of a transaction.
// No client may write them.
func (a Attributes) Control() bool { return a&controlFlag != 0 }

// HasHorizon reports whether the batch's BaseTimestamp is the time after which compaction may
// delete its tombstones. The records' timestamps are relative to BaseTimestamp all the same
// (KIP-534, DefaultRecordBatch.deleteHorizonMs).
func (a Attributes) HasHorizon() bool { return a&horizonFlag != 0 }

// Own reports whether weir marked the batch as its own (MarkOwn): then headers which say where the
// records come from can be trusted. No client may set the flag, and a copy of the records does not
// have it.
func (a Attributes) Own() bool { return a&ownFlag != 0 }

const (
	magic     = 2
	headerLen = 61
	frameLen  = 12 // base offset and length: what Length does not count

	// recordMin is the smallest record: its length, and one byte each for attributes, timestamp
	// delta, offset delta, key length, value length and count of headers.
	recordMin = 7

	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atRecords         = 57
)

// castagnoli is a table that lets hash/crc32 use the processor's own instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Check reads the header of raw, which must be exactly one batch as a client may send it, and
// checks all that can be checked without decompression: length, magic, CRC, codec, counts,
// timestamps. It does not allocate unless it fails.
//
// The caller decides which of the attributes control, transactional, append time, horizon and own
// it accepts.
func Check(raw []byte) (Header, error) {
	h, err := CheckStored(raw)
	if err != nil {
		return h, err
	}
	switch {
	case h.Records < 1:
		return h, invalid("its header says %d records; at least 1 is needed", h.Records)
	case h.LastOffsetDelta != h.Records-1:
		return h, invalid("its last offset delta is %d, but with %d records it must be %d", h.LastOffsetDelta, h.Records, h.Records-1)
	}
	return h, nil
}

// CheckStored is Check for a batch that may have been compacted: it may have fewer records than
// offsets, and even none.
func CheckStored(raw []byte) (Header, error) {
	if err := checkFrame(raw); err != nil {
		return Header{}, err
	}
	want := binary.BigEndian.Uint32(raw[atCRC:])
	if got := crc32.Checksum(raw[atAttributes:], castagnoli); got != want {
		return Header{}, corrupt("its CRC field says %#08x, but its %d bytes have the CRC %#08x", want, len(raw), got)
	}
	h := decodeHeader(raw)
	return h, h.check(len(raw))
}

// Parse is CheckStored without the CRC, for bytes that were checked before.
func Parse(raw []byte) (Header, error) {
	if err := checkFrame(raw); err != nil {
		return Header{}, err
	}
	h := decodeHeader(raw)
	return h, h.check(len(raw))
}

// Offsets is how many offsets the batch takes. It has fewer records if it was compacted.
func (h *Header) Offsets() int32 { return h.LastOffsetDelta + 1 }

func checkFrame(raw []byte) error {
	if len(raw) < headerLen {
		return corrupt("it has %d bytes; a batch header has %d", len(raw), headerLen)
	}
	if length := int32(binary.BigEndian.Uint32(raw[atLength:])); int64(length) != int64(len(raw)-frameLen) {
		return corrupt("its length field says %d, but with its %d bytes it must be %d", length, len(raw), len(raw)-frameLen)
	}
	switch m := int8(raw[atMagic]); m {
	case magic:
		return nil
	case 0, 1: // a message set from before Kafka 0.11: intact, but not supported
		return invalid("its magic is %d; only magic %d is supported: use a client of Kafka 0.11 or later", m, magic)
	default:
		return corrupt("its magic is %d; only magic %d is supported", m, magic)
	}
}

func decodeHeader(raw []byte) Header {
	_ = raw[headerLen-1]
	return Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(raw)),
		Length:          int32(binary.BigEndian.Uint32(raw[atLength:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(raw[atLeaderEpoch:])),
		CRC:             binary.BigEndian.Uint32(raw[atCRC:]),
		Attributes:      Attributes(binary.BigEndian.Uint16(raw[atAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(raw[atLastOffsetDelta:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(raw[atBaseTimestamp:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(raw[atMaxTimestamp:])),
		ProducerID:      int64(binary.BigEndian.Uint64(raw[atProducerID:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(raw[atProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(raw[atBaseSequence:])),
		Records:         int32(binary.BigEndian.Uint32(raw[atRecords:])),
	}
}

// check checks the header by the rules that Kafka's LogValidator has for batches from clients.
func (h *Header) check(size int) error {
	codec := h.Attributes.Codec()
	switch {
	case codec > Zstd:
		return fmt.Errorf("%w: its number is %d; 0 to %d are supported", ErrUnsupportedCodec, codec, Zstd)
	case h.Records < 0 || h.LastOffsetDelta < max(h.Records-1, 0):
		return invalid("its header says %d records, and %d is its last offset delta", h.Records, h.LastOffsetDelta)
	case codec == None && int64(h.Records)*recordMin > int64(size-headerLen):
		return invalid("its header says %d records, in %d bytes; a record has at least %d bytes", h.Records, size-headerLen, recordMin)
	case h.BaseTimestamp < NoTimestamp || h.MaxTimestamp < NoTimestamp:
		return invalid("its base timestamp is %d and its max timestamp %d; the lowest allowed is %d, which means unknown", h.BaseTimestamp, h.MaxTimestamp, NoTimestamp)
	case h.ProducerID >= 0 && h.BaseSequence < 0:
		return invalid("its producer, %d, gave it the sequence number %d; the lowest allowed is 0", h.ProducerID, h.BaseSequence)
	}
	return nil
}

// encode writes h over the first bytes of raw, all but the CRC.
func (h *Header) encode(raw []byte) {
	_ = raw[headerLen-1]
	binary.BigEndian.PutUint64(raw, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(raw[atLength:], uint32(h.Length))
	binary.BigEndian.PutUint32(raw[atLeaderEpoch:], uint32(h.LeaderEpoch))
	raw[atMagic] = magic
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(raw[atLastOffsetDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(raw[atBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(raw[atProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(raw[atProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(raw[atBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(raw[atRecords:], uint32(h.Records))
}

// Patch writes the base offset and the leader epoch into a batch. The CRC does not cover these 12
// bytes, so it stays valid.
func Patch(raw []byte, base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(raw, uint64(base))
	binary.BigEndian.PutUint32(raw[atLeaderEpoch:], uint32(leaderEpoch))
}

// StampAppendTime makes ms the timestamp of every record of a batch, as
// message.timestamp.type=LogAppendTime asks. The records' own timestamps stay in their bytes,
// unread.
func StampAppendTime(raw []byte, ms int64) {
	attributes := Attributes(binary.BigEndian.Uint16(raw[atAttributes:])) | appendTimeFlag
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(ms))
	stampCRC(raw)
}

// MarkOwn sets Attributes.Own of a batch.
func MarkOwn(raw []byte) {
	attributes := Attributes(binary.BigEndian.Uint16(raw[atAttributes:])) | ownFlag
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(attributes))
	stampCRC(raw)
}

func stampCRC(raw []byte) {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
}

// Split walks batches that stand one after the other, as in the records field of a produce request
// or a fetch response. It looks at lengths only; each piece is for Check or Parse. If the last one
// is cut short, as brokers may do in a fetch response, it ends with an ErrCorrupt.
func Split(raw []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for len(raw) > 0 {
			if len(raw) < headerLen {
				yield(nil, corrupt("%d bytes are left; a batch header has %d", len(raw), headerLen))
				return
			}
			length := int32(binary.BigEndian.Uint32(raw[atLength:]))
			size := int64(length) + frameLen
			if size < headerLen || size > int64(len(raw)) {
				yield(nil, corrupt("its length field says %d; %d to %d are possible here", length, headerLen-frameLen, len(raw)-frameLen))
				return
			}
			if !yield(raw[:size:size], nil) {
				return
			}
			raw = raw[size:]
		}
	}
}
