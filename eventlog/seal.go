package eventlog

import (
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
)

// filledBytes bounds a batch that is filled with several records; half of Kafka's default for
// max.message.bytes.
const filledBytes = 512 << 10

// sealing holds the settings of a topic that concern how its records become batches.
type sealing struct {
	codec      batch.Codec
	appendTime bool
	bytes      int // most bytes of a batch with several records
}

// defaultSealing applies to a topic without settings.
var defaultSealing = sealing{bytes: filledBytes}

func (t Topic) sealing() sealing {
	codec, _ := t.Codec()
	return sealing{codec: codec, appendTime: t.AppendTime(), bytes: t.FilledBytes()}
}

// Seal encodes records as one batch for one of the topic's partitions, with the compression and the
// timestamp type of the topic's settings. The records keep their own timestamps, also 0.
func (t Topic) Seal(p Partition, records []batch.Record) (Batch, error) {
	return t.sealing().seal(p, records)
}

// FilledBytes bounds the batches of several records that SealAll makes, uncompressed: 512 KiB, or
// the topic's max.message.bytes if that is less.
func (t Topic) FilledBytes() int { return min(filledBytes, t.MaxMessageBytes()) }

// SealAll is Seal with as many batches as the records need: each has at most FilledBytes,
// uncompressed, or one record.
func (t Topic) SealAll(p Partition, records []batch.Record) ([]Batch, error) {
	// Each record after the first saves at least this: the batch header's 61 bytes, less up to 14
	// bytes that its length and deltas may take more.
	const shared = 61 - 14
	s := t.sealing()
	var batches []Batch
	for rest := records; len(rest) > 0; {
		n := 1
		for size := batch.SealedSize(&rest[0]); n < len(rest); n++ {
			if size += batch.SealedSize(&rest[n]) - shared; size > s.bytes {
				break
			}
		}
		b, err := s.seal(p, rest[:n])
		if err != nil {
			return nil, err
		}
		batches, rest = append(batches, b), rest[n:]
	}
	return batches, nil
}

func (s sealing) seal(p Partition, records []batch.Record) (Batch, error) {
	raw, err := batch.Seal(records, s.codec)
	if err != nil {
		return Batch{}, fmt.Errorf("seal %d records for partition %d: %w", len(records), p, err)
	}
	if s.appendTime {
		batch.StampAppendTime(raw, time.Now().UnixMilli())
	}
	h, err := batch.Parse(raw)
	if err != nil {
		panic(fmt.Sprintf("sealed a batch that cannot be parsed: %v", err))
	}
	return Batch{Partition: p, Records: h.Records, MaxTime: Timestamp(h.MaxTimestamp), Bytes: raw}, nil
}

// sealLoose seals records that checkLoose has passed. A record with timestamp 0 gets the current
// time.
func (s sealing) sealLoose(p Partition, records []batch.Record) Batch {
	now := time.Now().UnixMilli()
	for i := range records {
		if records[i].Timestamp == 0 {
			records[i].Timestamp = now
		}
	}
	b, err := s.seal(p, records)
	if err != nil {
		panic(err.Error())
	}
	return b
}
