package storecopy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// recopyBytes bounds the batches of the source that one recopy holds in memory; one batch may be
// larger. Compaction only joins batches. So each batch that it writes ends where a batch of the
// copy ends, and one recopy needs no more than one such batch.
const recopyBytes = 16 << 20

// recopy replaces batches in the target by what compaction in the source has made of them since
// they were copied. The replaced part begins where batches begin in both stores, at the last such
// offset that is not above at. It ends at the next offset where batches end in both. recopy returns
// the target's end. If the source changes meanwhile, recopy may do nothing: the caller reads the
// source again.
//
// A batch of which the source has trimmed the first records cannot be replaced in the target: see
// keeps and tailOf.
func (c *Copy) recopy(ctx context.Context, p eventlog.Partition, at, end eventlog.Offset) (eventlog.Offset, error) {
	start := at
	for {
		from, err := oneBatch(ctx, c.from, p, start)
		if errors.Is(err, eventlog.ErrNoPartition) {
			return end, nil // deleted meanwhile
		}
		if err != nil {
			return end, fmt.Errorf("read the source: %w", err)
		}
		to, err := oneBatch(ctx, c.to, p, start)
		if err != nil {
			return end, fmt.Errorf("read the target: %w", err)
		}
		if from.Base > start {
			return end, nil // the source has trimmed it meanwhile
		}
		if low := min(from.Base, to.Base); low < start {
			start = low
			continue
		}
		break
	}
	replace := eventlog.Replace{Partition: p, From: start}
	size := 0
	for from, to := start, start; from == start || from != to; replace.To = from {
		switch {
		case from <= to:
			b, err := oneBatch(ctx, c.from, p, from)
			if errors.Is(err, eventlog.ErrNoPartition) {
				return end, nil // deleted meanwhile
			}
			if err != nil {
				return end, fmt.Errorf("read the source: %w", err)
			}
			if b.Base != from {
				return end, nil // trimmed or compacted meanwhile
			}
			if _, err := batch.CheckStored(b.Bytes); err != nil {
				return end, fmt.Errorf("the batch at offset %d of partition %d is damaged in the source: %w", b.Base, p, err)
			}
			if size += len(b.Bytes); size > recopyBytes && len(replace.Batches) > 0 {
				return end, differs("no batch of partition %d ends at the same offset in source and target from offset %d to %d, in %d bytes; compaction of the source leaves less than %d: "+
					"the source was rewound, or somebody wrote to the target; delete the target and begin anew", p, start, from, size, recopyBytes)
			}
			b.Batch.Partition = p
			replace.Batches = append(replace.Batches, b.Batch)
			from += eventlog.Offset(b.Records)
		case to == end: // a batch of the source continues past the target's end
			fill := eventlog.Batch{Partition: p, Records: int32(from - to), MaxTime: eventlog.NoTimestamp, Bytes: placeholder}
			if err := c.commit(ctx, eventlog.Entry{Batches: []eventlog.Batch{fill}}); err != nil {
				return end, fmt.Errorf("write to the target: %w", err)
			}
			to, end = from, from
		default:
			b, err := oneBatch(ctx, c.to, p, to)
			if err != nil {
				return end, fmt.Errorf("read the target: %w", err)
			}
			if why := damaged(b.Bytes); why != "" {
				return end, differs("the batch at offset %d of partition %d of the target%s", b.Base, p, why)
			}
			to += eventlog.Offset(b.Records)
		}
	}
	if err := c.commit(ctx, eventlog.Entry{Replaces: []eventlog.Replace{replace}}); err != nil {
		return end, fmt.Errorf("replace what was compacted in the source: %w", err)
	}
	for _, b := range replace.Batches {
		c.done.Records, c.done.Bytes = c.done.Records+int64(b.Records), c.done.Bytes+int64(len(b.Bytes))
	}
	c.report(c.done)
	return end, nil
}

// keeps compares a batch that the source compacted, and of which it trimmed the first records, with
// what the target has of these offsets: the batches as they were copied. It returns the end of
// those that were compared. The target's batches may have more records than the source's: the copy
// is compacted by itself once it is in use.
func keeps(p eventlog.Partition, a eventlog.Placed, first eventlog.Offset, target []eventlog.Placed) (end eventlog.Offset, err error) {
	var want []batch.Record
	for rec, err := range a.Decode() {
		if err != nil {
			return 0, fmt.Errorf("the batch at offset %d of partition %d is damaged in the source: %w", a.Base, p, err)
		}
		want = append(want, rec)
	}
	for _, b := range target {
		if b.Base >= a.End() {
			break
		}
		if why := damaged(b.Bytes); why != "" {
			return 0, differs("the batch at offset %d of partition %d of the target%s", b.Base, p, why)
		}
		end = b.End()
		for len(want) > 0 && want[0].Offset < int64(max(first, b.Base)) {
			want = want[1:]
		}
		for rec, err := range b.Decode() {
			if err != nil {
				break // a placeholder: the record is missing
			}
			if len(want) > 0 && reflect.DeepEqual(rec, want[0]) {
				want = want[1:]
			}
		}
		if len(want) > 0 && want[0].Offset < int64(end) {
			return 0, differs("the target does not have the record at offset %d of partition %d", want[0].Offset, p)
		}
	}
	return end, nil
}

// tailOf returns the records of a batch from an offset on, as a batch that begins there: the target
// has the offsets below it, and compaction in the source has joined both.
func tailOf(b eventlog.Placed, from eventlog.Offset) (eventlog.Batch, error) {
	h, err := batch.CheckStored(b.Bytes)
	if err != nil {
		return eventlog.Batch{}, err
	}
	last := b.End() - 1
	rest := batch.Compacted{
		Base: int64(from), Last: int64(last), Codec: h.Attributes.Codec(), AppendTime: h.Attributes.AppendTime(), Own: h.Attributes.Own(), EmptyTime: int64(b.MaxTime),
	}
	if h.Attributes.HasHorizon() {
		rest.Horizon = h.BaseTimestamp
	}
	for rec, err := range b.Decode() {
		if err != nil {
			return eventlog.Batch{}, err
		}
		if rec.Offset >= int64(from) {
			rest.Records = append(rest.Records, rec)
		}
	}
	raw, err := rest.Seal()
	if err != nil {
		return eventlog.Batch{}, err
	}
	if h, err = batch.Parse(raw); err != nil {
		panic(fmt.Sprintf("the copy sealed a batch that cannot be parsed: %v", err))
	}
	return eventlog.Batch{Records: h.Offsets(), MaxTime: eventlog.Timestamp(h.MaxTimestamp), Bytes: raw}, nil
}

// oneBatch reads the batch that holds an offset.
func oneBatch(ctx context.Context, store eventlog.Store, p eventlog.Partition, at eventlog.Offset) (eventlog.Placed, error) {
	got, err := store.Read(ctx, []eventlog.Span{{Partition: p, From: at, MaxBytes: 1}}, 1)
	switch {
	case err != nil:
		return eventlog.Placed{}, err
	case got[0].Err != nil:
		return eventlog.Placed{}, got[0].Err
	case len(got[0].Batches) == 0:
		return eventlog.Placed{Base: at + 1}, nil // it is trimmed
	}
	return got[0].Batches[0], nil
}
