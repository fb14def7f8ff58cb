package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/weir-log/weir/eventlog"
)

// Read implements eventlog.Store. A span costs three lookups, however long the log is. The check of the incarnation costs
// one more, and a stat of the file.
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
	slice := eventlog.Slice{Bounds: p.bounds(span.Partition)}
	if span.MaxBytes <= 0 || span.From < p.first || span.From >= p.next {
		return slice, nil
	}
	if slice.Batches, err = c.heads(span, p.next, budget); err != nil || len(slice.Batches) == 0 {
		return slice, err
	}
	return slice, c.fill(slice.Batches)
}

var errDamaged = errors.New("the file is damaged")

// damage turns an error about the batches of one span into an error of that span's slice, so that other partitions can be
// read.
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
		d.Next = first.Base + eventlog.Offset(first.Records)
	}
	return d
}

// heads returns which batches a span gets, without their bytes: so no bytes are read for a batch that does not fit.
func (c *conn) heads(span eventlog.Span, next eventlog.Offset, budget *eventlog.Budget) (heads []eventlog.Placed, err error) {
	budget.Begin(span.MaxBytes)
	found := false
	err = c.query(sqlFrom, func(row []driver.Value) error {
		b := eventlog.Placed{Base: eventlog.Offset(row[0].(int64)), Batch: eventlog.Batch{
			Partition: span.Partition, Records: int32(row[1].(int64)), MaxTime: eventlog.Timestamp(row[2].(int64)),
		}}
		if found = found || span.From < b.Base+eventlog.Offset(b.Records); !found || !budget.Take(int(row[3].(int64))) {
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

// missing returns the error that no batch holds the first offset of a span, with the offset of the next batch.
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

// Seek implements eventlog.Store by binary search over the offsets: some forty lookups, none of which reads the bytes of
// a batch.
func (s *Store) Seek(ctx context.Context, id eventlog.Partition, goal eventlog.Goal) (at eventlog.Offset, err error) {
	err = s.view(ctx, func(r *conn) error {
		if err := s.unchanged(r); err != nil {
			return err
		}
		p, err := r.partition(id)
		if err != nil {
			return err
		}
		if p == nil {
			return eventlog.ErrNoPartition
		}
		if goal.Bytes > 0 {
			at, err = r.seekBytes(id, p, goal.Bytes)
		} else {
			at, err = r.seekTime(id, p, max(p.first, goal.From), goal.At)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("seek in partition %d: %w", id, err)
	}
	return at, nil
}

// head is what Seek reads of a batch.
type head struct {
	base            eventlog.Offset
	newest, maxTime eventlog.Timestamp
	firstByte       int64
}

func (c *conn) holding(id eventlog.Partition, at eventlog.Offset) (head, error) {
	row, err := c.integers(sqlHolding, int64(id), int64(at))
	if err == nil && row == nil {
		err = fmt.Errorf("no batch has the offset %d: the file is damaged", at)
	}
	if err != nil {
		return head{}, err
	}
	return head{eventlog.Offset(row[0]), eventlog.Timestamp(row[1]), eventlog.Timestamp(row[2]), row[3]}, nil
}

// search returns the lowest offset in [from, next) whose batch is right, or next. Every batch after a right batch must be right, too.
func (c *conn) search(id eventlog.Partition, from, next eventlog.Offset, right func(head) bool) (eventlog.Offset, error) {
	var failed error
	n := sort.Search(int(max(0, next-from)), func(i int) bool {
		h, err := c.holding(id, from+eventlog.Offset(i))
		if err != nil {
			failed = err
		}
		return err != nil || right(h)
	})
	return min(from+eventlog.Offset(n), next), failed
}

func (c *conn) seekTime(id eventlog.Partition, p *partition, from eventlog.Offset, goal eventlog.Timestamp) (eventlog.Offset, error) {
	at, err := c.search(id, from, p.next, func(h head) bool { return h.newest >= goal })
	if err != nil || at >= p.next {
		return at, err
	}
	// newest is the maximum of all batches so far: perhaps only a batch below from, or one that was replaced, is new enough. So
	// compare the batches' own times.
	h, err := c.holding(id, at)
	if err != nil || h.maxTime >= goal {
		return at, err
	}
	row, err := c.integers(sqlNotOlder, int64(id), int64(at), int64(goal))
	if err != nil || row == nil {
		return p.next, err
	}
	return eventlog.Offset(row[0]), nil
}

func (c *conn) seekBytes(id eventlog.Partition, p *partition, goal int64) (eventlog.Offset, error) {
	if p.replaced > p.first {
		return c.seekReplaced(id, p, goal)
	}
	// The first batch that leaves too few bytes; the batch before it is the answer.
	at, err := c.search(id, p.first, p.next, func(h head) bool { return p.nextByte-h.firstByte < goal })
	if err != nil || at == p.first {
		return p.first, err
	}
	h, err := c.holding(id, at-1)
	return max(p.first, h.base), err
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
			value, _ := row[2].([]byte) // nil for none
			age := time.Duration(min(max(0, now-row[3].(int64)), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
			list = append(list, eventlog.KeyValue{Key: key, Version: eventlog.Version(row[1].(int64)), Value: value, Age: age, Now: eventlog.Timestamp(now)})
			return nil
		}, max(prefix, after+"\x00"), int64(limit)) // the least key above after is after with a zero byte appended
	})
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	return list, nil
}
