package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// Read implements eventlog.Store. A span costs three lookups, however long the log is. The check of
// the incarnation costs one more, and a stat of the file.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	slices := make([]eventlog.Slice, len(spans))
	err := s.view(ctx, func(r *conn) error {
		if err := s.unchanged(r); err != nil {
			return err
		}
		budget := eventlog.NewBudget(maxBytes)
		for i, span := range spans {
			var err error
			slices[i], err = r.slice(span, &budget)
			if damaged := damage(span, slices[i], err); damaged != nil {
				slices[i].Batches, slices[i].Err, err = nil, damaged, nil
			}
			if err != nil {
				return fmt.Errorf("partition %d from %d: %w", span.Partition, span.From, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return slices, nil
}

func (c *conn) slice(span eventlog.Span, budget *eventlog.Budget) (eventlog.Slice, error) {
	p, err := c.partition(span.Partition)
	if err != nil {
		return eventlog.Slice{}, err
	}
	if p == nil {
		return eventlog.Slice{Bounds: eventlog.Bounds{Partition: span.Partition}, Err: eventlog.ErrNoPartition}, nil
	}
	slice := eventlog.Slice{Bounds: p.Bounds(span.Partition)}
	if span.MaxBytes <= 0 || span.From < p.First || span.From >= p.Next {
		return slice, nil
	}
	if slice.Batches, err = c.heads(span, p.Next, budget); err != nil || len(slice.Batches) == 0 {
		return slice, err
	}
	return slice, c.fill(slice.Batches)
}

var errDamaged = errors.New("the file is damaged")

// damage turns an error about the batches of one span into an error of that span's slice, so that
// other partitions can be read.
func damage(span eventlog.Span, slice eventlog.Slice, err error) error {
	if missing, is := errors.AsType[*eventlog.DamagedError](err); is {
		return missing
	}
	if err == nil || !errors.Is(err, errDamaged) && code(err) != codes.SQLITE_CORRUPT {
		return nil
	}
	d := &eventlog.DamagedError{Partition: span.Partition, From: span.From, Err: err}
	if len(slice.Batches) > 0 {
		first := slice.Batches[0]
		d.Next = first.End()
	}
	return d
}

// heads returns which batches a span gets, without their bytes: so no bytes are read for a batch
// that does not fit.
func (c *conn) heads(span eventlog.Span, next eventlog.Offset, budget *eventlog.Budget) (heads []eventlog.Placed, err error) {
	budget.Begin(span.MaxBytes)
	found := false
	err = c.query(sqlFrom, func(row []driver.Value) error {
		b := eventlog.Placed{Base: eventlog.Offset(row[0].(int64)), Batch: eventlog.Batch{
			Partition: span.Partition, Records: int32(row[1].(int64)), MaxTime: eventlog.Timestamp(row[2].(int64)),
		}}
		if found = found || span.From < b.End(); !found || !budget.Take(int(row[3].(int64))) {
			return errStop
		}
		heads = append(heads, b)
		return nil
	}, int64(span.Partition), int64(span.From), int64(next))
	if err == nil && !found {
		err = c.missing(span, next)
	}
	return heads, err
}

// missing returns the error that no batch holds the first offset of a span, with the offset of the
// next batch.
func (c *conn) missing(span eventlog.Span, next eventlog.Offset) error {
	row, err := c.integers(sqlNextBatch, int64(span.Partition), int64(span.From))
	if err != nil {
		return err
	}
	d := &eventlog.DamagedError{Partition: span.Partition, From: span.From, Next: next}
	if len(row) > 0 {
		d.Next = eventlog.Offset(row[0])
	}
	d.Err = fmt.Errorf("no batch has the offsets [%d, %d): %w", d.From, d.Next, errDamaged)
	return d
}

// fill reads the bytes of consecutive batches.
func (c *conn) fill(run []eventlog.Placed) error {
	i := 0
	err := c.query(sqlBodies, func(row []driver.Value) error {
		run[i].Bytes, _ = row[0].([]byte) // nil for none
		i++
		return nil
	}, int64(run[0].Partition), int64(run[0].Base), int64(run[len(run)-1].Base))
	if err == nil && i != len(run) {
		err = fmt.Errorf("only %d of the %d batches from offset %d on have their bytes: %w", i, len(run), run[0].Base, errDamaged)
	}
	return err
}

// Seek implements eventlog.Store by binary search over the offsets: for each goal some forty
// lookups, none of which reads the bytes of a batch.
func (s *Store) Seek(ctx context.Context, goals []eventlog.Goal) (found []eventlog.Found, err error) {
	err = s.view(ctx, func(r *conn) error {
		if err := s.unchanged(r); err != nil {
			return err
		}
		partitions := make(map[eventlog.Partition]*storerow.Partition, len(goals))
		for _, goal := range goals {
			p, err := r.partition(goal.Partition)
			if err != nil {
				return err
			}
			if p != nil {
				partitions[goal.Partition] = &p.Partition
			}
		}
		found, err = storerow.Seek(index{r}, partitions, goals)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	return found, nil
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (list []eventlog.KeyValue, err error) {
	if limit <= 0 {
		return nil, nil
	}
	now := time.Now().UnixMilli()
	err = s.view(ctx, func(r *conn) error {
		if err := s.unchanged(r); err != nil {
			return err
		}
		return r.query(sqlList, func(row []driver.Value) error {
			key := row[0].(string)
			if !strings.HasPrefix(key, prefix) {
				return errStop
			}
			list = append(list, keyValue(key, row[1:], now))
			return nil
		}, max(prefix, after+"\x00"), int64(limit)) // the least key above after is after with a zero byte appended
	})
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	return list, nil
}

// Get implements eventlog.Store.
func (s *Store) Get(ctx context.Context, keys []string, maxBytes int) (found []eventlog.KeyValue, err error) {
	now := time.Now().UnixMilli()
	err = s.view(ctx, func(r *conn) error {
		if err := s.unchanged(r); err != nil {
			return err
		}
		for i, key := range keys {
			kv := eventlog.KeyValue{Key: key}
			err := r.query(sqlGet, func(row []driver.Value) error {
				kv = keyValue(key, row, now)
				return errStop
			}, key)
			if err != nil {
				return err
			}
			if maxBytes -= len(kv.Value); i > 0 && maxBytes < 0 {
				return nil
			}
			found = append(found, kv)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	return found, nil
}

// keyValue returns a key's value from its version, value and time.
func keyValue(key string, row []driver.Value, now int64) eventlog.KeyValue {
	value, _ := row[1].([]byte) // nil for none
	age := time.Duration(min(max(0, now-row[2].(int64)), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	return eventlog.KeyValue{Key: key, Version: eventlog.Version(row[0].(int64)), Value: value, Age: age, Now: eventlog.Timestamp(now)}
}
