package eventlog

import (
	"context"
	"fmt"
	"math"

	"github.com/weir-log/weir/eventlog/batch"
)

// Since is the answer of OffsetsAt for one partition: the first record that is not before the time
// that was asked for. If There is false, there is no such record. Err is the error of this
// partition only, such as ErrNoPartition, or *DamagedError.
type Since struct {
	batch.Moment
	There bool
	Err   error
}

// OffsetsAt returns, for each goal's partition, the first record at or above the goal's From whose
// timestamp is not before the goal's At. It makes two store calls for each thousand partitions, and
// one more for each 4 MiB of the batches that hold these records. If the records of a batch at or
// after that time are all deleted, its partition is asked for again, together with all others that
// need it.
func (l *Log) OffsetsAt(ctx context.Context, goals []Goal) ([]Since, error) {
	found := make([]Since, len(goals))
	open := make([]int, len(goals)) // indexes of the goals without an answer
	from := make([]Offset, len(goals))
	for i, g := range goals {
		open[i], from[i] = i, g.From
	}
	for len(open) > 0 {
		asked := make([]Goal, len(open))
		for i, n := range open {
			asked[i] = Goal{Partition: goals[n].Partition, At: goals[n].At, From: from[n]}
		}
		bases, err := l.Seek(ctx, asked)
		if err != nil {
			return nil, err
		}
		spans := make([]Span, len(open))
		for i, b := range bases {
			spans[i] = Span{Partition: asked[i].Partition, From: b.At}
		}
		var again []int
		err = l.BatchesAt(ctx, spans, func(i int, s Slice) error {
			n, answer := open[i], &found[open[i]]
			switch {
			case bases[i].Err != nil:
				answer.Err = bases[i].Err
				return nil
			case s.Err != nil:
				answer.Err = s.Err
				return nil
			case spans[i].From < s.Bounds.First: // the record was deleted since the search
				from[n] = s.Bounds.First
				again = append(again, n)
				return nil
			case len(s.Batches) == 0: // the end of the partition
				return nil
			}
			b := s.Batches[0]
			answer.Moment, answer.There, answer.Err = batch.FirstSince(b.Bytes, int64(b.Base), int64(max(s.Bounds.First, from[n])), int64(goals[n].At), batch.DefaultMaxDecompressed)
			if !answer.There && answer.Err == nil {
				from[n] = b.End()
				again = append(again, n)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		open = again
	}
	return found, nil
}

// OffsetsOfNewest returns, for each partition, the first record with the highest timestamp. There
// is false if the partition is empty.
//
// It searches with OffsetsAt: each call asks for later times than the newest found. Mostly the last
// batch is the newest, and the first call ends the search; otherwise the steps double, and once a
// call finds nothing they are halved down to 0. All partitions are searched in step with each
// other.
func (l *Log) OffsetsOfNewest(ctx context.Context, ps []Partition) ([]Since, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	newest := make([]Since, len(ps))
	bounds, err := l.EachBounds(ctx, ps...)
	if err != nil {
		return nil, err
	}
	var open []*newestSearch
	var spans []Span
	for i, b := range bounds {
		if newest[i].Err = b.Err; b.Err == nil && b.Bounds.First < b.Bounds.Next {
			open = append(open, &newestSearch{partition: ps[i], found: &newest[i], step: 1})
			spans = append(spans, Span{Partition: ps[i], From: b.Bounds.Next - 1})
		}
	}
	err = l.BatchesAt(ctx, spans, func(i int, s Slice) error {
		found := open[i].found
		switch {
		case s.Err != nil:
			found.Err = s.Err
		case len(s.Batches) > 0:
			b := s.Batches[0]
			found.Moment, found.There, found.Err = batch.Newest(b.Bytes, int64(b.Base), int64(s.Bounds.First), batch.DefaultMaxDecompressed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var ended []*newestSearch
	for len(open) > 0 {
		var going []*newestSearch
		var goals []Goal
		for _, s := range open {
			switch {
			case s.found.Err != nil || !s.found.There:
			case s.step == 0:
				ended = append(ended, s)
			default:
				going = append(going, s)
				goals = append(goals, Goal{Partition: s.partition, At: s.later()})
			}
		}
		better, err := l.OffsetsAt(ctx, goals)
		if err != nil {
			return nil, err
		}
		for i, s := range going {
			s.learn(better[i])
		}
		open = going
	}
	// An earlier record may have the same time.
	goals := make([]Goal, len(ended))
	for i, s := range ended {
		goals[i] = Goal{Partition: s.partition, At: Timestamp(s.found.Timestamp)}
	}
	first, err := l.OffsetsAt(ctx, goals)
	if err != nil {
		return nil, err
	}
	for i, s := range ended {
		*s.found = first[i]
	}
	return newest, nil
}

// newestSearch is the search of OffsetsOfNewest in one partition.
type newestSearch struct {
	partition Partition
	found     *Since // the newest record found so far
	step      int64
	halving   bool
}

// later returns the time to ask for next.
func (s *newestSearch) later() Timestamp {
	if s.found.Timestamp > math.MaxInt64-s.step {
		return math.MaxInt64
	}
	return Timestamp(s.found.Timestamp + s.step)
}

func (s *newestSearch) learn(better Since) {
	switch {
	case better.Err != nil:
		*s.found = better
	case !better.There:
		s.halving = true
		s.step /= 2
	default:
		*s.found = better
		if !s.halving {
			s.step *= 2
		}
	}
}

const (
	// batchesBytes is how many bytes of batches a store call of BatchesAt asks for.
	batchesBytes = 4 << 20
	// The batches of one partition have at most batchShare bytes in the first call of BatchesAt for
	// it, and shareGrowth times as many in each further one. Mostly the first batch is wanted, and
	// those after it are not.
	batchShare  = 4 << 10
	shareGrowth = 32
)

// BatchesAt reads from the store, for each span, the batch that holds its offset, and calls visit
// with the index of the span, in any order. A slice's Batches are empty if the offset is outside of
// the bounds. The offsets may be newer than what the tail knows. BatchesAt makes a store call for
// each thousand spans, and one more for each 4 MiB, about; nothing is prefetched. An error of visit
// ends it.
func (l *Log) BatchesAt(ctx context.Context, spans []Span, visit func(i int, s Slice) error) error {
	open := make([]int, len(spans))
	for i := range open {
		open[i] = i
	}
	for share := batchShare; len(open) > 0; share = min(share*shareGrowth, batchesBytes) {
		var rest []int
		for len(open) > 0 {
			page := open[:min(len(open), seekPage)]
			asked := make([]Span, len(page))
			for i, n := range page {
				asked[i] = Span{Partition: spans[n].Partition, From: spans[n].From, MaxBytes: share}
			}
			got, err := l.read(ctx, asked, batchesBytes)
			if err != nil {
				return fmt.Errorf("read the batches at %d offsets: %w", len(asked), err)
			}
			for i, s := range got {
				n := page[i]
				at := spans[n].From
				if s.Err == nil && len(s.Batches) == 0 && at >= s.Bounds.First && at < s.Bounds.Next {
					rest = append(rest, n) // the batch is larger than its share, or than what the other spans left
					continue
				}
				if err := visit(n, s); err != nil {
					return err
				}
			}
			open = open[len(page):]
		}
		open = rest
	}
	return nil
}

// batchAt reads from the store the batch that holds an offset, as BatchesAt does. At the end of the
// partition the batch is empty.
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
