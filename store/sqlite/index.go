package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// index finds batches in the file. It implements storerow.Index.
type index struct{ *conn }

func (c index) Holding(id eventlog.Partition, at eventlog.Offset) (storerow.Batch, error) {
	row, err := c.integers(sqlHolding, int64(id), int64(at))
	if err == nil && row == nil {
		err = fmt.Errorf("no batch has the offset %d: the file is damaged", at)
	}
	if err != nil {
		return storerow.Batch{}, err
	}
	return storerow.Batch{Base: eventlog.Offset(row[0]), Newest: eventlog.Timestamp(row[1]), MaxTime: eventlog.Timestamp(row[2]), FirstByte: row[3]}, nil
}

func (c index) NotOlder(id eventlog.Partition, from eventlog.Offset, than eventlog.Timestamp) (at eventlog.Offset, found bool, err error) {
	row, err := c.integers(sqlNotOlder, int64(id), int64(from), int64(than))
	if err != nil || row == nil {
		return 0, false, err
	}
	return eventlog.Offset(row[0]), true, nil
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
