package sqlite

import (
	"database/sql/driver"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// index finds batches in the file. It implements storerow.Index.
type index struct{ *conn }

func (c index) Holding(places []storerow.Place) ([]storerow.Batch, error) {
	batches := make([]storerow.Batch, len(places))
	for i, p := range places {
		row, err := c.integers(sqlHolding, int64(p.Partition), int64(p.At))
		if err != nil {
			return nil, err
		}
		if batches[i].Base = storerow.None; row == nil {
			continue
		}
		batches[i] = storerow.Batch{Base: eventlog.Offset(row[0]), Newest: eventlog.Timestamp(row[1]), MaxTime: eventlog.Timestamp(row[2]), FirstByte: row[3]}
	}
	return batches, nil
}

func (c index) NotOlder(places []storerow.Place) ([]eventlog.Offset, error) {
	found := make([]eventlog.Offset, len(places))
	for i, p := range places {
		row, err := c.integers(sqlNotOlder, int64(p.Partition), int64(p.At), int64(p.NotOlder))
		if err != nil {
			return nil, err
		}
		if found[i] = storerow.None; row != nil {
			found[i] = eventlog.Offset(row[0])
		}
	}
	return found, nil
}

func (c index) Span(id eventlog.Partition, from, to eventlog.Offset) (storerow.Span, error) {
	row, err := c.integers(sqlSpanned, int64(id), int64(from), int64(to))
	if err != nil {
		return storerow.Span{}, err
	}
	return storerow.Span{Batches: row[0], From: eventlog.Offset(row[1]), To: eventlog.Offset(row[2]), Bytes: row[3], FirstByte: row[4], Newest: eventlog.Timestamp(row[5])}, nil
}

func (c index) Down(id eventlog.Partition, from eventlog.Offset, yield func(base eventlog.Offset, size int64) bool) error {
	return c.query(sqlSizesDown, func(row []driver.Value) error {
		if !yield(eventlog.Offset(row[0].(int64)), row[1].(int64)) {
			return errStop
		}
		return nil
	}, int64(id), int64(from))
}
