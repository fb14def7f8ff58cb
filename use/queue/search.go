package queue

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// search looks for a message in the records of partitions, with a budget for all of them.
type search struct {
	id      MessageID
	bytes   int64 // how many bytes of batches may still be read
	records int64 // how many records may still be decoded
	cut     bool  // there was more than that: the message may be where nobody looked
}

// scanned is a partition to scan, and the key of its state.
type scanned struct {
	partition eventlog.Partition
	key       string
}

// match is a record that has the message, and what became of it there.
type match struct {
	record batch.Record
	run    claims.Run
}

// errFound ends a scan.
var errFound = errors.New("found")

// scan searches partitions for a message, in their records that are not done. The function passed
// as `is` reports which records count. Each partition may take an equal part of the budget that is
// left. It reads the states of the partitions that have records: one store call per thousand, or
// per 4 MiB. nil: it was not found.
func (q *Queue) scan(ctx context.Context, all []scanned, s *search, is func(batch.Record, MessageID) bool) (m *match, err error) {
	var keys []string
	all = slices.DeleteFunc(slices.Clone(all), func(in scanned) bool {
		b, known := q.log.Known(in.partition)
		return known && b.First >= b.Next
	})
	for _, in := range all {
		keys = append(keys, in.key)
	}
	err = q.owner.each(ctx, keys, func(i int, st *claims.State) error {
		bounds := q.owner.boundsOf(all[i].partition)
		left := int64(len(all) - i)
		part := search{id: s.id, bytes: s.bytes / left, records: s.records / left}
		bytes, records := part.bytes, part.records
		var err error
		m, err = q.scanPartition(ctx, st.Within(bounds), bounds.Stable(), &part, is)
		s.bytes, s.records, s.cut = s.bytes-bytes+part.bytes, s.records-records+part.records, s.cut || part.cut
		if m != nil {
			return errFound
		}
		return err
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return m, err
}

// scanPartition returns the last record of a message in a partition that ends at end. Outside of
// the wheel it decodes only batches that weir made: no other batch has messages that were moved.
func (q *Queue) scanPartition(ctx context.Context, mine *claims.Part, end eventlog.Offset, s *search, is func(batch.Record, MessageID) bool) (m *match, err error) {
	p := mine.Partition
	reader, moved := newRecords(q.log, nil), q.owner.wheel.has(p) // not q.records: what workers need stays cached there
	for o := mine.Floor; o < end; {
		if r, there := mine.At(o); there && r.Fate == claims.Done {
			o = r.End()
			continue
		}
		if s.bytes <= 0 || s.records <= 0 {
			s.cut = true
			return m, nil
		}
		got, err := q.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: o, MaxBytes: readBytes}}})
		if err != nil {
			return nil, err
		}
		var outside *eventlog.RangeError
		var damaged *eventlog.DamagedError
		switch err := got[0].Err; {
		case errors.As(err, &outside) && o < outside.First:
			o = outside.First
			continue
		case errors.As(err, &outside), errors.Is(err, eventlog.ErrNoPartition), err == nil && len(got[0].Batches) == 0:
			return m, nil // the rest of the partition, or all of it, was deleted meanwhile
		case errors.As(err, &damaged):
			o = max(o+1, damaged.Next)
			continue
		case err != nil:
			return nil, err
		}
		for _, b := range got[0].Batches {
			o = b.End()
			s.bytes -= int64(len(b.Bytes))
			if h, err := batch.Parse(b.Bytes); err != nil || !moved && !h.Attributes.Own() {
				continue
			}
			records, _, err := reader.decode(ctx, b)
			if ctx.Err() != nil {
				return nil, gaveUpDecoding(ctx, q.log)
			}
			if err != nil {
				continue // nobody can read it
			}
			s.records -= int64(len(records))
			for _, rec := range records {
				at := MessageID{p, eventlog.Offset(rec.Offset)}
				r, there := mine.At(at.Offset)
				if at.Offset < mine.Floor || there && r.Fate == claims.Done {
					continue
				}
				if idOf(claims.Grant{Partition: p, Offset: at.Offset}, rec) == s.id && !q.isOthers(rec) && is(rec, at) {
					m = &match{rec, r} // the newest counts
				}
			}
		}
	}
	return m, nil
}
