package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// span is what the batches that begin in a span of offsets have together.
type span struct {
	batches          int64
	from, to         eventlog.Offset // where the first begins, and the last ends
	bytes, firstByte int64
	newest           eventlog.Timestamp
}

func (c *conn) span(id eventlog.Partition, from, to eventlog.Offset) (span, error) {
	row, err := c.integers(sqlSpanned, int64(id), int64(from), int64(to))
	if err != nil {
		return span{}, err
	}
	return span{row[0], eventlog.Offset(row[1]), eventlog.Offset(row[2]), row[3], row[4], eventlog.Timestamp(row[5])}, nil
}

// checkReplaces returns why the batches of an entry cannot be replaced. It changes nothing.
func (f *flush) checkReplaces(entry eventlog.Entry) (refusal, err error) {
	for _, r := range entry.Replaces {
		p, err := f.partition(r.Partition)
		if err != nil {
			return nil, err
		}
		switch {
		case f.noSpace != nil:
			return f.noSpace, nil
		case p == nil:
			return eventlog.ErrNoPartition, nil
		case r.From < p.first:
			return eventlog.ErrStale, nil
		}
		old, err := f.conn.span(r.Partition, r.From, r.To)
		if err != nil {
			return nil, err
		}
		if old.batches == 0 || old.from != r.From || old.to != r.To {
			return eventlog.ErrStale, nil
		}
	}
	return nil, nil
}

// replace deletes the old batches and adds the new ones. Other batches keep their first_byte, so partition.removed has the difference.
func (f *flush) replace(r eventlog.Replace) error {
	p := f.partitions[r.Partition]
	old, err := f.conn.span(r.Partition, r.From, r.To)
	if err != nil {
		return err
	}
	if err := f.conn.exec(sqlDeleteSpanBodies, int64(r.Partition), int64(r.From), int64(r.To)); err != nil {
		return err
	}
	if err := f.conn.exec(sqlDeleteSpan, int64(r.Partition), int64(r.From), int64(r.To)); err != nil {
		return err
	}
	at := r.From
	for _, b := range r.Batches {
		// newest must not decrease along the partition: it stays that of the old batches, and may be too high.
		if err := f.conn.addBatch(b, at, max(old.newest, b.MaxTime), old.firstByte); err != nil {
			return err
		}
		p.removed -= int64(len(b.Bytes))
		at += eventlog.Offset(b.Records)
	}
	p.removed += old.bytes
	p.replaced = max(p.replaced, r.To)
	p.changed = true
	return nil
}

// excess returns what partition.removed counts between the batch that holds First and a later batch.
func (c *conn) excess(id eventlog.Partition, p *partition, later head) (int64, error) {
	if p.replaced <= p.first {
		return 0, nil
	}
	first, err := c.holding(id, p.first)
	if err != nil {
		return 0, err
	}
	between, err := c.span(id, first.base, later.base)
	return later.firstByte - first.firstByte - between.bytes, err
}

// seekReplaced is seekBytes for a partition in which batches were replaced: it adds the sizes up, newest first.
func (c *conn) seekReplaced(id eventlog.Partition, p *partition, goal int64) (at eventlog.Offset, err error) {
	at = p.first
	first, err := c.holding(id, p.first)
	if err != nil {
		return at, err
	}
	var after int64
	err = c.query(sqlSizesDown, func(row []driver.Value) error {
		if after += row[1].(int64); after < goal {
			return nil
		}
		at = max(p.first, eventlog.Offset(row[0].(int64)))
		return errStop
	}, int64(id), int64(first.base))
	return at, err
}

func checkReplacements(entries []eventlog.Entry) error {
	for _, e := range entries {
		for _, r := range e.Replaces {
			if err := r.Check(); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
	return nil
}
