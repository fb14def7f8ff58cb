package judge

import (
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// ProducerID notes that a producer was given an id: nobody else has it.
func (m *Model) ProducerID(session string, id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, is := m.producers[id]; is && other != session {
		m.violate("P6", []string{session, other}, "%s and %s were given the producer id %d", other, session, id)
	}
	m.producers[id] = session
}

func (m *Model) JudgeSequence(l *Life, partition int32, base eventlog.Offset, before, h batch.Header) {
	m.mu.Lock()
	defer m.mu.Unlock()
	want := int32((int64(before.BaseSequence) + int64(before.LastOffsetDelta) + 1) & (1<<31 - 1))
	switch {
	case before.Records == 0: // the first one, as far as the partition goes back
	case h.ProducerEpoch < before.ProducerEpoch:
		m.violate("P4", []string{l.Name}, "%s/%d has a batch of epoch %d of producer %d at offset %d, behind one of epoch %d", l, partition, h.ProducerEpoch, h.ProducerID, base, before.ProducerEpoch)
	case h.ProducerEpoch == before.ProducerEpoch && h.BaseSequence != want:
		m.violate("P3", []string{l.Name}, "%s/%d has sequence number %d of producer %d at offset %d, where %d is next", l, partition, h.BaseSequence, h.ProducerID, base, want)
	}
}
