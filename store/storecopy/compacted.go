package storecopy

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// recopy brings a part of a partition to what compaction in the source made of it after it was copied: from the last offset at or below at where batches begin in both stores to the
// next where batches end in both. It returns the target's end.
func (c *Copy) recopy(ctx context.Context, p eventlog.Partition, at, end eventlog.Offset) (eventlog.Offset, error) {
	start := at
	for {
		from, err := oneBatch(ctx, c.from, p, start)
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
	for from, to := start, start; from == start || from != to; replace.To = from {
		switch {
		case from <= to:
			b, err := oneBatch(ctx, c.from, p, from)
			if err != nil {
				return end, fmt.Errorf("read the source: %w", err)
			}
			if b.Base != from {
				return end, nil // trimmed meanwhile
			}
			if _, err := batch.CheckStored(b.Bytes); err != nil {
				return end, fmt.Errorf("the batch at offset %d of partition %d is damaged in the source: %w", b.Base, p, err)
			}
			b.Batch.Partition = p
			replace.Batches = append(replace.Batches, b.Batch)
			from += eventlog.Offset(b.Records)
		case to == end: // a batch of the source goes on behind the target's end
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
