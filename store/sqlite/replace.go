package sqlite

import "github.com/weir-log/weir/eventlog"

// replace deletes the old batches and adds the new ones.
func (f *flush) replace(r eventlog.Replace) error {
	p := f.partitions[r.Partition]
	old, err := index{f.conn}.Span(r.Partition, r.From, r.To)
	if err != nil {
		return err
	}
	if err := f.conn.exec(sqlDeleteSpanBodies, int64(r.Partition), int64(r.From), int64(r.To)); err != nil {
		return err
	}
	if err := f.conn.exec(sqlDeleteSpan, int64(r.Partition), int64(r.From), int64(r.To)); err != nil {
		return err
	}
	for i, row := range p.Replace(r, old) {
		if err := f.conn.addBatch(r.Batches[i], row); err != nil {
			return err
		}
	}
	p.changed = true
	return nil
}
