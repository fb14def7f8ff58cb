package sqlite

import "github.com/weir-log/weir/eventlog"

// checkReplaces returns why the batches of an entry cannot be replaced. It changes nothing.
func (f *flush) checkReplaces(entry eventlog.Entry) (refusal, err error) {
	for _, r := range entry.Replaces {
		p, err := f.partition(r.Partition)
		switch {
		case err != nil:
			return nil, err
		case f.noSpace != nil:
			return f.noSpace, nil
		case p == nil:
			return eventlog.ErrNoPartition, nil
		}
		if refusal, err := p.Refuses(index{f.conn}, r); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, nil
}

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
