package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// headsMax is how many batches of one span are returned at most.
const headsMax = 1000

var errDamaged = errors.New("the tables are damaged")

const selectPartition = "SELECT id, first_offset, next_offset, first_byte, next_byte, newest, replaced, removed FROM weir_partition WHERE id IN "

func scanPartition(row *sql.Rows) (id eventlog.Partition, p *storerow.Partition, err error) {
	p = new(storerow.Partition)
	err = row.Scan(&id, &p.First, &p.Next, &p.FirstByte, &p.NextByte, &p.Newest, &p.Replaced, &p.Removed)
	return id, p, err
}

// Read implements eventlog.Store with two trips: which batches, and their bytes.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	slices, err := look(ctx, s, func(v *view) ([]eventlog.Slice, error) {
		if len(spans) == 0 {
			return nil, nil
		}
		partitions, heads, err := v.heads(spans)
		if err != nil {
			return nil, err
		}
		slices := make([]eventlog.Slice, len(spans))
		budget := eventlog.NewBudget(maxBytes)
		var bodies text
		for i, span := range spans {
			slices[i].Bounds.Partition = span.Partition
			p := partitions[span.Partition]
			if p == nil {
				slices[i].Err = eventlog.ErrNoPartition
				v.saw.gone = append(v.saw.gone, span.Partition)
				continue
			}
			slices[i].Bounds = p.Bounds(span.Partition)
			v.saw.bounds = append(v.saw.bounds, slices[i].Bounds)
			if span.MaxBytes <= 0 || span.From < p.First || span.From >= p.Next {
				continue
			}
			choose(&slices[i], span, heads[i], p.Next, &budget)
			if len(slices[i].Batches) > 0 {
				fill(&bodies, &slices[i])
			}
		}
		if len(bodies.scans) > 0 {
			err = v.run(&bodies)
		}
		for i, span := range spans {
			check(&slices[i], span, heads[i])
		}
		return slices, err
	})
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return slices, nil
}

// heads returns the partitions of spans, and for each span the rows of batches from the one that
// holds its offset onwards.
func (v *view) heads(spans []eventlog.Span) (map[eventlog.Partition]*storerow.Partition, [][]storerow.Batch, error) {
	partitions := make(map[eventlog.Partition]*storerow.Partition, len(spans))
	heads := make([][]storerow.Batch, len(spans))
	ids := make([]any, len(spans))
	for i, span := range spans {
		ids[i] = int64(span.Partition)
	}
	var t text
	t.add(func(row *sql.Rows) error {
		id, p, err := scanPartition(row)
		partitions[id] = p
		return err
	}, selectPartition+list(len(ids)), ids...)
	for i, span := range spans {
		if span.MaxBytes <= 0 {
			continue
		}
		t.add(func(row *sql.Rows) error {
			var b storerow.Batch
			err := row.Scan(&b.Base, &b.Records, &b.MaxTime, &b.Size)
			heads[i] = append(heads[i], b)
			return err
		}, `SELECT base_offset, records, max_time, size FROM weir_batch
			WHERE partition_id = ? AND base_offset >= coalesce((SELECT max(base_offset) FROM weir_batch WHERE partition_id = ? AND base_offset <= ?), ?)
			ORDER BY base_offset LIMIT ?`, int64(span.Partition), int64(span.Partition), int64(span.From), int64(span.From), headsMax)
	}
	return partitions, heads, v.run(&t)
}

// choose takes the batches that a span gets.
func choose(slice *eventlog.Slice, span eventlog.Span, heads []storerow.Batch, next eventlog.Offset, budget *eventlog.Budget) {
	budget.Begin(span.MaxBytes)
	for i, b := range heads {
		if i == 0 && (span.From < b.Base || span.From >= b.Base+eventlog.Offset(b.Records)) {
			d := &eventlog.DamagedError{Partition: span.Partition, From: span.From, Next: next}
			for _, later := range heads {
				if later.Base > span.From {
					d.Next = later.Base
					break
				}
			}
			d.Err = fmt.Errorf("no batch has the offsets [%d, %d): %w", d.From, d.Next, errDamaged)
			slice.Err = d
			return
		}
		if !budget.Take(b.Size) {
			return
		}
		slice.Batches = append(slice.Batches, eventlog.Placed{Base: b.Base, Batch: eventlog.Batch{Partition: span.Partition, Records: b.Records, MaxTime: b.MaxTime, Bytes: make([]byte, 0, b.Size)}})
	}
	if len(heads) == 0 {
		slice.Err = &eventlog.DamagedError{Partition: span.Partition, From: span.From, Next: next, Err: fmt.Errorf("no batch has the offsets [%d, %d): %w", span.From, next, errDamaged)}
	}
}

// fill adds the statement that reads the bytes of a slice.
func fill(t *text, slice *eventlog.Slice) {
	run, i := slice.Batches, 0
	var piece sql.RawBytes
	t.add(func(row *sql.Rows) error {
		var base eventlog.Offset
		if err := row.Scan(&base, &piece); err != nil {
			return err
		}
		for i < len(run) && run[i].Base < base {
			i++
		}
		if i < len(run) && run[i].Base == base {
			run[i].Bytes = append(run[i].Bytes, piece...)
		}
		return nil
	}, "SELECT base_offset, bytes FROM weir_piece WHERE partition_id = ? AND base_offset BETWEEN ? AND ? ORDER BY base_offset, nth", int64(run[0].Partition), int64(run[0].Base), int64(run[len(run)-1].Base))
}

// check cuts a slice before a batch that does not have all its bytes.
func check(slice *eventlog.Slice, span eventlog.Span, heads []storerow.Batch) {
	for i, b := range slice.Batches {
		if len(b.Bytes) == heads[i].Size {
			continue
		}
		slice.Batches = slice.Batches[:i]
		if i == 0 {
			slice.Err = &eventlog.DamagedError{Partition: span.Partition, From: span.From, Next: b.End(),
				Err: fmt.Errorf("the batch at offset %d has %d of its %d bytes: %w", b.Base, len(b.Bytes), heads[i].Size, errDamaged)}
		}
		return
	}
}

// Seek implements eventlog.Store by binary search over the offsets: at most some forty trips for
// all goals by time, and as many for each goal by bytes.
func (s *Store) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	if len(goals) == 0 {
		return nil, nil
	}
	ids := make([]any, len(goals))
	for i, goal := range goals {
		ids[i] = int64(goal.Partition)
	}
	found, err := look(ctx, s, func(v *view) ([]eventlog.Found, error) {
		partitions := make(map[eventlog.Partition]*storerow.Partition, len(goals))
		var t text
		t.add(func(row *sql.Rows) error {
			id, p, err := scanPartition(row)
			partitions[id] = p
			v.saw.bounds = append(v.saw.bounds, p.Bounds(id))
			return err
		}, selectPartition+list(len(ids)), ids...)
		if err := v.run(&t); err != nil {
			return nil, err
		}
		for _, goal := range goals {
			if partitions[goal.Partition] == nil {
				v.saw.gone = append(v.saw.gone, goal.Partition)
			}
		}
		return storerow.Seek(index{v.run}, partitions, goals)
	})
	if err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	return found, nil
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if limit <= 0 {
		return nil, nil
	}
	from, below := []byte(max(prefix, after+"\x00")), end(prefix) // the least key above after is after with a zero byte appended
	if below == nil {
		below = bytes.Repeat([]byte{0xff}, keyMax+1)
	}
	found, err := look(ctx, s, func(v *view) (found []eventlog.KeyValue, err error) {
		var t text
		t.add(func(row *sql.Rows) error {
			kv, err := v.keyValue(row)
			if err != nil {
				return err
			}
			found = append(found, kv)
			return nil
		}, selectKeys+"k >= ? AND k < ? ORDER BY k LIMIT ?", from, below, limit)
		return found, v.run(&t)
	})
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	return found, nil
}

const selectKeys = "SELECT k, version, value, put_at, " + now + " FROM weir_state WHERE "

// keyValue reads a row of selectKeys.
func (v *view) keyValue(row *sql.Rows) (kv eventlog.KeyValue, err error) {
	var key sql.RawBytes
	var putAt int64
	if err := row.Scan(&key, &kv.Version, &kv.Value, &putAt, &kv.Now); err != nil {
		return kv, err
	}
	kv.Key = string(key)
	kv.Age = time.Duration(min(max(0, int64(kv.Now)-putAt), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	if young(kv.Age) {
		v.saw.keys = append(v.saw.keys, storedAs(kv.Key, kv.Version, kv.Value))
	}
	return kv, nil
}

// Get implements eventlog.Store. If there are several keys, it makes two trips: how large their
// values are, and the values.
func (s *Store) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	asked := make([]any, len(keys))
	for i, key := range keys {
		asked[i] = []byte(key)
	}
	found, err := look(ctx, s, func(v *view) ([]eventlog.KeyValue, error) {
		fit := len(keys)
		if len(keys) > 1 {
			sizes := make(map[string]int)
			var t text
			t.add(func(row *sql.Rows) error {
				var key sql.RawBytes
				var size int
				err := row.Scan(&key, &size)
				sizes[string(key)] = size
				return err
			}, "SELECT k, length(value) FROM weir_state WHERE k IN "+list(len(asked)), asked...)
			if err := v.run(&t); err != nil {
				return nil, err
			}
			left := maxBytes
			for i, key := range keys {
				if left -= sizes[key]; i > 0 && left < 0 {
					fit = i
					break
				}
			}
		}
		there := make(map[string]eventlog.KeyValue)
		var t text
		t.add(func(row *sql.Rows) error {
			kv, err := v.keyValue(row)
			there[kv.Key] = kv
			return err
		}, selectKeys+"k IN "+list(fit), asked[:fit]...)
		if err := v.run(&t); err != nil {
			return nil, err
		}
		found := make([]eventlog.KeyValue, fit)
		for i := range found {
			found[i] = there[keys[i]]
			found[i].Key = keys[i]
		}
		return found, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	return found, nil
}

// now is the server's clock in milliseconds.
const now = "timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(3)) DIV 1000"

// end returns the least key above all that begin with a prefix; nil: there is none.
func end(prefix string) []byte {
	cut := []byte(prefix)
	for len(cut) > 0 && cut[len(cut)-1] == 0xff {
		cut = cut[:len(cut)-1]
	}
	if len(cut) == 0 {
		return nil
	}
	cut[len(cut)-1]++
	return cut
}
