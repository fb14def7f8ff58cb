package eventlog

import (
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
)

// looseBytes bounds a batch sealed from loose records of many callers; half of Kafka's default for max.message.bytes.
const looseBytes = 512 << 10

// sealing holds the settings of a topic that concern how its records become batches.
type sealing struct {
	codec      batch.Codec
	appendTime bool
	bytes      int // most bytes of a batch with records of many callers
}

// defaultSealing applies to a topic without settings.
var defaultSealing = sealing{bytes: looseBytes}

func (t Topic) sealing() sealing {
	codec, _ := t.Codec()
	return sealing{codec: codec, appendTime: t.AppendTime(), bytes: min(looseBytes, t.MaxMessageBytes())}
}

// Seal encodes records as one batch for one of the topic's partitions, with the compression and the timestamp type of the
// topic's settings. The records keep their own timestamps, also 0.
func (t Topic) Seal(p Partition, records []batch.Record) (Batch, error) {
	return t.sealing().seal(p, records)
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
		panic(fmt.Sprintf("sealed a batch that does not parse: %v", err))
	}
	return Batch{Partition: p, Records: h.Records, MaxTime: Timestamp(h.MaxTimestamp), Bytes: raw}, nil
}

// sealLoose seals records that checkLoose has passed. A record with timestamp 0 gets the current time.
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
