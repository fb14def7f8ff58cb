package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weir-log/weir/eventlog/batch"
)

// OffsetAt returns the first record of a partition whose timestamp is not before at; found is false if there is none. It
// makes two store calls, and two more for each batch whose records at or after that time are all deleted.
func (l *Log) OffsetAt(ctx context.Context, p Partition, at Timestamp) (m batch.Moment, found bool, err error) {
	err = l.eachSince(ctx, p, at, func(b Placed, first Offset) (enough bool, err error) {
		m, found, err = batch.FirstSince(b.Bytes, int64(b.Base), int64(first), int64(at), batch.DefaultMaxDecompressed)
		return found, err
	})
	return m, found, err
}

// OffsetOfNewest returns the first record with the highest timestamp of a partition; found is false if it is empty.
//
// It searches with OffsetAt: each call asks for a later time than the newest found. Mostly the last batch is the newest, and
// the first call ends the search; otherwise the steps double, and once a call finds nothing they are halved down to 0.
func (l *Log) OffsetOfNewest(ctx context.Context, p Partition) (newest batch.Moment, found bool, err error) {
	bounds, err := l.Bounds(ctx, p)
	if err == nil {
		err = bounds[0].Err
	}
	if err != nil || bounds[0].Bounds.First == bounds[0].Bounds.Next {
		return newest, false, err
	}
	b, first, err := l.batchAt(ctx, p, bounds[0].Bounds.Next-1)
	if err != nil {
		return newest, false, err
	}
	if newest, found, err = batch.Newest(b.Bytes, int64(b.Base), int64(first), batch.DefaultMaxDecompressed); err != nil || !found {
		return newest, false, err
	}
	for step, halving := int64(1), false; step > 0; {
		goal := newest.Timestamp + step
		if goal < newest.Timestamp {
			goal = math.MaxInt64
		}
		better, there, err := l.OffsetAt(ctx, p, Timestamp(goal))
		switch {
		case err != nil:
			return newest, false, err
		case !there:
			halving = true
			step /= 2
			continue
		}
		newest = better
		if !halving {
			step *= 2
		}
	}
	// An earlier record may have the same time.
	return l.OffsetAt(ctx, p, Timestamp(newest.Timestamp))
}

// eachSince visits the batches whose newest record is not older than at, in order, until visit returns true. Records
// below first are deleted.
func (l *Log) eachSince(ctx context.Context, p Partition, at Timestamp, visit func(b Placed, first Offset) (enough bool, err error)) error {
	for from := Offset(0); ; {
		base, err := l.Seek(ctx, p, Goal{At: at, From: from})
		if err != nil {
			return err
		}
		b, first, err := l.batchAt(ctx, p, base)
		var outside *RangeError
		switch {
		case errors.As(err, &outside) && base < outside.First:
			from = outside.First // it was deleted since the search
			continue
		case err != nil:
			return err
		case b.Records == 0:
			return nil
		}
		if enough, err := visit(b, max(first, from)); err != nil || enough {
			return err
		}
		from = b.Base + Offset(b.Records)
	}
}

// batchAt reads from the store the batch that holds an offset. The store has just returned that offset: the tail may not know
// it yet. At the end of the partition the batch is empty.
func (l *Log) batchAt(ctx context.Context, p Partition, at Offset) (b Placed, first Offset, err error) {
	s := Span{Partition: p, From: at, MaxBytes: 1}
	got, err := l.read(ctx, []Span{s}, s.MaxBytes)
	if err != nil {
		return b, 0, fmt.Errorf("read the batch at %d of partition %d: %w", at, p, err)
	}
	slice := got[0]
	switch {
	case slice.Err != nil:
		return b, slice.Bounds.First, slice.Err
	case at < slice.Bounds.First || at > slice.Bounds.Next:
		return b, 0, outside(s, slice.Bounds)
	case at == slice.Bounds.Next:
		return b, slice.Bounds.First, nil
	}
	return slice.Batches[0], slice.Bounds.First, nil
}
