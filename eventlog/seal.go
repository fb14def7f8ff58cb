package eventlog

import (
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
)

// looseBytes bounds a batch sealed from loose records of many callers; half of Kafka's default for max.message.bytes.
const looseBytes = 512 << 10

// sealing is how a topic wants its records sealed.
type sealing struct {
	codec      batch.Codec
	appendTime bool
	bytes      int // of a batch of many callers' records
}

// plain is how records are sealed for whom nothing else is known.
var plain = sealing{bytes: looseBytes}

func (t Topic) sealing() sealing {
	codec, _ := t.Codec()
	return sealing{codec: codec, appendTime: t.AppendTime(), bytes: min(looseBytes, t.MaxMessageBytes())}
}

// Seal makes one batch of records for one of the topic's partitions, with the codec and the timestamps that its settings ask for.
// The records keep their own timestamps, also 0.
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

// sealLoose is for records that were bounded when they came. One with timestamp 0 gets the present time.
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
