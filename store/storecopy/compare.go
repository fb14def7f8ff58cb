package storecopy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Compare reads the records of both stores up to the end of the target, except those that it has
// compared already. It returns a *DifferentError if bytes or offsets differ. Each record is
// compared once: after that only compaction changes it, and the copy is compacted by itself once it
// is in use.
func (c *Copy) Compare(ctx context.Context) error {
	err := c.again(ctx, func() error {
		all, _, err := c.pairs(ctx)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(all, spansMost) {
			if err := c.compareSome(ctx, some); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	return nil
}

func (c *Copy) compareSome(ctx context.Context, some []pair) error {
	for idle := 0; ; {
		var spans []eventlog.Span
		for _, p := range some {
			if at := max(c.compared[p.Partition], p.from.First, p.to.First); at < min(p.from.Next, p.to.Next) {
				c.compared[p.Partition] = at
				spans = append(spans, eventlog.Span{Partition: p.Partition, From: at, MaxBytes: readBytes})
			}
		}
		if len(spans) == 0 {
			return nil
		}
		from, err := c.from.Read(ctx, spans, readBytes)
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		to, err := c.to.Read(ctx, spans, readBytes)
		if err != nil {
			return fmt.Errorf("read the target: %w", err)
		}
		before, further := c.done, false
		for i, span := range spans {
			if err := c.compareSlice(ctx, span, from[i], to[i]); err != nil {
				return err
			}
			further = further || c.compared[span.Partition] > span.From
			for j := range some {
				if p := &some[j]; p.Partition == span.Partition {
					p.from.First = max(p.from.First, from[i].Bounds.First) // the source trims while it is read
					if errors.Is(from[i].Err, eventlog.ErrNoPartition) {
						p.from.Next = 0
					}
				}
			}
		}
		if further || c.done != before || moved(spans, from) {
			idle = 0
		} else if idle++; idle == tries { // the source may be trimmed or compacted between two reads, but not so often
			return differs("the target returns no records of partition %d from offset %d", spans[0].Partition, spans[0].From)
		}
		c.report(c.done)
	}
}

// moved reports whether the source has trimmed or deleted what was asked for.
func moved(spans []eventlog.Span, from []eventlog.Slice) bool {
	for i, span := range spans {
		if from[i].Err != nil || from[i].Bounds.First > span.From {
			return true
		}
	}
	return false
}

// compareSlice compares what both stores returned for one span, as far as both have it.
func (c *Copy) compareSlice(ctx context.Context, span eventlog.Span, from, to eventlog.Slice) error {
	switch {
	case errors.Is(from.Err, eventlog.ErrNoPartition):
		return nil // deleted meanwhile
	case from.Err != nil:
		return fmt.Errorf("read partition %d of the source from offset %d: %w", span.Partition, span.From, from.Err)
	case to.Err != nil:
		return fmt.Errorf("read partition %d of the target from offset %d: %w", span.Partition, span.From, to.Err)
	}
	for i := range min(len(from.Batches), len(to.Batches)) {
		a, b := from.Batches[i], to.Batches[i]
		if a.Base > b.Base && from.Bounds.First > b.Base {
			return nil // the source trimmed between the reads
		}
		if a.Base != b.Base || a.Records != b.Records || a.MaxTime != b.MaxTime || !bytes.Equal(a.Bytes, b.Bytes) {
			if b.Base >= a.Base && a.Base < from.Bounds.First { // compaction in the source rewrote it, and then its first records were trimmed: recopy cannot replace it
				end, err := keeps(span.Partition, a, max(from.Bounds.First, span.From), to.Batches[i:])
				c.compared[span.Partition] = end
				return err
			}
			if damaged(b.Bytes) == "" { // compaction in the source has rewritten it since it was copied
				_, err := c.recopy(ctx, span.Partition, a.Base, to.Bounds.Next)
				return err
			}
			return differs("the batch at offset %d of partition %d has %d offsets and %d bytes in the source; the target has one at %d, with %d offsets and %d bytes%s",
				a.Base, span.Partition, a.Records, len(a.Bytes), b.Base, b.Records, len(b.Bytes), damaged(b.Bytes))
		}
		c.compared[span.Partition] = a.End()
		c.done.Compared += int64(len(a.Bytes))
	}
	return nil
}

// damaged says why a batch of the target is damaged, for an error; "" if it is not damaged, or is a
// placeholder.
func damaged(raw []byte) string {
	if len(raw) == len(placeholder) {
		return ""
	}
	if _, err := batch.CheckStored(raw); err != nil {
		return ": " + err.Error()
	}
	return ""
}

// equal returns a *DifferentError unless both stores have the same partitions, with the same
// bounds, and the same keys. The source must be closed.
func (c *Copy) equal(ctx context.Context) error {
	all, gone, err := c.pairs(ctx)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		return differs("the target has partition %d, which the source does not have", gone[0])
	}
	for _, p := range all {
		if p.missing() || p.from.First != p.to.First || p.from.Next != p.to.Next {
			return differs("partition %d has the offsets [%d, %d) in the source and [%d, %d) in the target", p.Partition, p.from.First, p.from.Next, p.to.First, p.to.Next)
		}
	}
	return c.compareKeys(ctx, func(from, to eventlog.KeyValue) error {
		return differs("key %q is at version %d in the source and %d in the target", cmp.Or(from.Key, to.Key), from.Version, to.Version)
	})
}
