package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// Commit implements eventlog.Store: one transaction, and one fsync, for any number of entries.
func (s *Store) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if err := storerow.CheckReplaces(entries); err != nil {
		return nil, err
	}
	var f *flush
	run := func(noSpace error) func(w *conn) error {
		return func(w *conn) error {
			if err := s.unchanged(w); err != nil {
				return err
			}
			f = &flush{conn: w, now: time.Now().UnixMilli(), noSpace: noSpace, partitions: map[eventlog.Partition]*partition{}}
			return f.run(entries)
		}
	}
	err := s.exclusively(ctx, func(w *conn) error {
		noSpace, err := s.spaceRefusalWithWAL(w)
		if err != nil {
			return s.explain(err)
		}
		if noSpace == nil {
			err := s.attempt(ctx, w, run(nil))
			if errors.Is(err, eventlog.ErrNoSpace) && s.restartWAL() {
				err = s.attempt(ctx, w, run(nil))
			}
			s.remember(err)
			if !errors.Is(err, eventlog.ErrNoSpace) {
				return err
			}
			noSpace = err
		}
		return s.attemptWithReserve(ctx, w, run(noSpace)) // commits the entries that need little space, and refuses the others
	})
	if err != nil {
		return nil, fmt.Errorf("commit %d entries: %w", len(entries), err)
	}
	if f.forgot {
		s.keeper.wake()
	}
	return f.outcomes, nil
}

// flush is one Commit in progress.
type flush struct {
	conn       *conn
	now        int64
	noSpace    error                             // why records are refused; nil: they are not
	partitions map[eventlog.Partition]*partition // those read so far; nil: it does not exist
	outcomes   []eventlog.Outcome
	forgot     bool // an entry deleted a partition
}

// partition is a row of the table partition, and whether it must be written.
type partition struct {
	storerow.Partition
	changed bool
}

func (f *flush) run(entries []eventlog.Entry) error {
	f.outcomes = make([]eventlog.Outcome, len(entries))
	for i, entry := range entries {
		refusal, err := entry.Refusal(f, f.noSpace)
		if err != nil {
			return err
		}
		if refusal != nil {
			f.outcomes[i].Err = refusal
			continue
		}
		if f.outcomes[i].Base, err = f.apply(entry); err != nil {
			return err
		}
	}
	for id, p := range f.partitions {
		if p != nil && p.changed {
			if err := p.put(f.conn, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// Version implements eventlog.Content.
func (f *flush) Version(key string) (eventlog.Version, error) {
	version, err := f.conn.integers(sqlVersion, key)
	if len(version) == 0 {
		return 0, err
	}
	return eventlog.Version(version[0]), err
}

// Exists implements eventlog.Content.
func (f *flush) Exists(id eventlog.Partition) (bool, error) {
	p, err := f.partition(id)
	return p != nil, err
}

// Holds implements eventlog.Content.
func (f *flush) Holds(r eventlog.Replace) (bool, error) {
	return f.partitions[r.Partition].Holds(index{f.conn}, r)
}

// apply writes an entry that is not refused.
func (f *flush) apply(entry eventlog.Entry) ([]eventlog.Offset, error) {
	base := make([]eventlog.Offset, len(entry.Batches))
	for i, b := range entry.Batches {
		p := f.partitions[b.Partition]
		if p == nil {
			p = &partition{*storerow.Empty(), true}
			f.partitions[b.Partition] = p
		}
		if b.Records == 0 {
			continue
		}
		base[i] = p.Next
		if err := f.append(p, b); err != nil {
			return nil, err
		}
	}
	for _, put := range entry.Puts {
		if err := f.put(put, base); err != nil {
			return nil, err
		}
	}
	for _, r := range entry.Replaces {
		if err := f.replace(r); err != nil {
			return nil, err
		}
	}
	for _, id := range entry.Forgets {
		if err := f.conn.forget(id); err != nil {
			return nil, err
		}
		f.forgot = true
	}
	return base, nil
}

func (f *flush) append(p *partition, b eventlog.Batch) error {
	p.changed = true
	return f.conn.addBatch(b, p.Append(b))
}

func (c *conn) addBatch(b eventlog.Batch, row storerow.Batch) error {
	body := b.Bytes
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	if err := c.exec(sqlAddBody, body); err != nil {
		return err
	}
	return c.exec(sqlAddBatch, int64(b.Partition), int64(row.Base), int64(row.Records), int64(row.MaxTime), int64(row.Newest), row.FirstByte, int64(row.Size))
}

func (f *flush) put(put eventlog.Put, base []eventlog.Offset) error {
	if put.Value == nil {
		return f.conn.exec(sqlForget, put.Key)
	}
	return f.conn.exec(sqlPut, put.Key, int64(put.Version), put.Stored(base), f.now)
}

// partition returns a partition as this flush has changed it so far; nil: it does not exist.
func (f *flush) partition(id eventlog.Partition) (*partition, error) {
	if p, known := f.partitions[id]; known {
		return p, nil
	}
	p, err := f.conn.partition(id)
	if err == nil {
		f.partitions[id] = p
	}
	return p, err
}

// partition reads the row of a partition; nil: it does not exist.
func (c *conn) partition(id eventlog.Partition) (*partition, error) {
	row, err := c.integers(sqlPartition, int64(id))
	if err != nil || row == nil {
		return nil, err
	}
	return &partition{Partition: storerow.Partition{
		First: eventlog.Offset(row[0]), Next: eventlog.Offset(row[1]),
		FirstByte: row[2], NextByte: row[3],
		Newest:   eventlog.Timestamp(row[4]),
		Replaced: eventlog.Offset(row[5]), Removed: row[6],
	}}, nil
}

func (p *partition) put(c *conn, id eventlog.Partition) error {
	return c.exec(sqlPutPartition, int64(id), int64(p.First), int64(p.Next), p.FirstByte, p.NextByte, int64(p.Newest), int64(p.Replaced), p.Removed)
}
