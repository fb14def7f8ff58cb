package storecopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes bounds the batches of one read and one commit; the first batch may be larger.
	readBytes = 4 << 20
	// spansMost bounds the partitions that are read at once.
	spansMost = 256
	// keysMost bounds the keys that are read or committed at once, putBytes the bytes of their
	// values.
	keysMost, putBytes = 1000, 1 << 20
	// tries bounds how often a pass begins anew because an answer was lost or a store entered
	// another incarnation.
	tries = 8
)

// placeholder is the content of batches that only take offsets. Nobody reads them: they are trimmed
// or replaced.
var placeholder = []byte{0}

// Pass copies to the target what it lacks of the source's content, as of about the time of the
// call. It returns what it copied.
func (c *Copy) Pass(ctx context.Context) (Progress, error) {
	before := c.done
	err := c.again(ctx, func() error {
		if err := c.copyRecords(ctx); err != nil {
			return err
		}
		return c.copyKeys(ctx)
	})
	copied := Progress{Records: c.done.Records - before.Records, Bytes: c.done.Bytes - before.Bytes, Keys: c.done.Keys - before.Keys}
	if err != nil {
		return copied, fmt.Errorf("copy: %w", err)
	}
	return copied, nil
}

// again calls do, and repeats it after ErrRewound or ErrUnsure, until it was called tries times.
// Any other error ends it.
func (c *Copy) again(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !errors.Is(err, eventlog.ErrRewound) && !errors.Is(err, eventlog.ErrUnsure) || try == tries {
			return err
		}
		if errors.Is(err, eventlog.ErrUnsure) {
			// A commit whose answer was lost may still happen. It checks the version of the guard
			// in the target: take raises that, so the commit is refused from then on.
			if err := c.take(ctx, c.version); err != nil {
				return err
			}
		}
	}
}

// pair is what both stores hold of one partition.
type pair struct {
	eventlog.Partition
	from, to eventlog.Bounds
}

// pairs reads the bounds of both stores, and the partitions that only the target has.
func (c *Copy) pairs(ctx context.Context) (all []pair, gone []eventlog.Partition, err error) {
	from, _, err := c.from.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return nil, nil, fmt.Errorf("read the source: %w", err)
	}
	if _, err := c.from.List(ctx, "", "", 1); err != nil { // it asks every shard: Changes leaves out a shard that has never answered, and its partitions are not gone
		return nil, nil, fmt.Errorf("read the source: %w", err)
	}
	to, _, err := c.to.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return nil, nil, fmt.Errorf("read the target: %w", err)
	}
	have := make(map[eventlog.Partition]eventlog.Bounds, len(to))
	for _, b := range to {
		if c.scope.has(b.Partition) {
			have[b.Partition] = b
		}
	}
	for _, b := range from {
		if !c.scope.has(b.Partition) {
			continue
		}
		t, found := have[b.Partition]
		if !found {
			t.Partition = -1
		}
		all = append(all, pair{b.Partition, b, t})
		delete(have, b.Partition)
	}
	for p := range have {
		gone = append(gone, p)
	}
	if c.scope.only != 0 && len(all) == 0 {
		return nil, nil, fmt.Errorf("partition %d of the source: %w", c.scope.only, eventlog.ErrNoPartition)
	}
	return all, gone, nil
}

func (s scope) has(p eventlog.Partition) bool { return s.only == 0 || s.only == p }

func (p pair) missing() bool { return p.to.Partition < 0 }

func (c *Copy) copyRecords(ctx context.Context) error {
	all, gone, err := c.pairs(ctx)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		if err := c.commit(ctx, eventlog.Entry{Forgets: gone}); err != nil {
			return fmt.Errorf("delete %d partitions in the target: %w", len(gone), err)
		}
	}
	var create eventlog.Entry
	for i, p := range all {
		if p.to.Next > p.from.Next {
			return differs("partition %d ends at offset %d in the source and %d in the target: the source was rewound, or somebody wrote to the target; delete the target and begin anew", p.Partition, p.from.Next, p.to.Next)
		}
		if p.missing() {
			create.Batches = append(create.Batches, eventlog.Batch{Partition: p.Partition})
			all[i].to = eventlog.Bounds{Partition: p.Partition}
		}
	}
	for batches := range slices.Chunk(create.Batches, keysMost) {
		if err := c.commit(ctx, eventlog.Entry{Batches: batches}); err != nil {
			return fmt.Errorf("create %d partitions in the target: %w", len(batches), err)
		}
	}
	for some := range slices.Chunk(all, spansMost) {
		if err := c.copySome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// copySome copies the records of some partitions, and trims them as in the source.
func (c *Copy) copySome(ctx context.Context, some []pair) error {
	for {
		var spans []eventlog.Span
		var of []*pair
		for i := range some {
			if p := &some[i]; p.to.Next < p.from.Next {
				spans, of = append(spans, eventlog.Span{Partition: p.Partition, From: max(p.to.Next, p.from.First), MaxBytes: readBytes}), append(of, p)
			}
		}
		if len(spans) == 0 {
			break
		}
		slices, err := c.from.Read(ctx, spans, readBytes)
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		if err := c.append(ctx, of, slices); err != nil {
			return err
		}
	}
	var trims []eventlog.Trim
	for _, p := range some {
		if p.to.First < p.from.First {
			trims = append(trims, eventlog.Trim{Partition: p.Partition, Before: p.from.First})
		}
	}
	if len(trims) == 0 {
		return nil
	}
	errs, err := c.to.Trim(ctx, trims)
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("trim partitions of the target: %w", err)
	}
	return nil
}

// append appends to the target what was read of some partitions (the parameter of), and notes in
// their pairs how far the target has come.
func (c *Copy) append(ctx context.Context, of []*pair, read []eventlog.Slice) error {
	var e eventlog.Entry
	var want []eventlog.Offset // the base offsets of e's batches
	now := make([]eventlog.Offset, len(of))
	var records, size int64
	for i, p := range of {
		now[i] = p.to.Next
		switch err := read[i].Err; {
		case errors.Is(err, eventlog.ErrNoPartition):
			now[i] = p.from.Next // it was deleted just now: the next pass deletes it in the target
			continue
		case err != nil:
			return fmt.Errorf("read partition %d of the source from offset %d: %w", p.Partition, max(p.to.Next, p.from.First), err)
		}
		p.from.First = read[i].Bounds.First
		fill := func(end eventlog.Offset) {
			for now[i] < end {
				n := min(end-now[i], math.MaxInt32)
				// Offsets that the source has trimmed are filled with placeholders, which are
				// trimmed once the partition is copied.
				e.Batches, want = append(e.Batches, eventlog.Batch{Partition: p.Partition, Records: int32(n), MaxTime: eventlog.NoTimestamp, Bytes: placeholder}), append(want, now[i])
				now[i] += n
			}
		}
		for _, b := range read[i].Batches {
			if b.End() <= now[i] {
				continue
			}
			fill(b.Base)
			if b.Base < now[i] && b.Base < read[i].Bounds.First { // the target has the first offsets of this batch, and cannot replace what is trimmed in part
				rest, err := tailOf(b, now[i])
				if err != nil {
					return fmt.Errorf("the batch at offset %d of partition %d is damaged in the source: %w", b.Base, p.Partition, err)
				}
				b = eventlog.Placed{Base: now[i], Batch: rest}
			}
			if b.Base != now[i] { // compaction has joined several batches, and the target has the first of these
				end, err := c.recopy(ctx, p.Partition, b.Base, p.to.Next)
				p.to.Next = end
				return err
			}
			if _, err := batch.CheckStored(b.Bytes); err != nil {
				return fmt.Errorf("the batch at offset %d of partition %d is damaged in the source: %w", b.Base, p.Partition, err)
			}
			e.Batches, want = append(e.Batches, b.Batch), append(want, b.Base)
			e.Batches[len(e.Batches)-1].Partition = p.Partition
			now[i] += eventlog.Offset(b.Records)
			records, size = records+int64(b.Records), size+int64(len(b.Bytes))
		}
		if len(read[i].Batches) == 0 && read[i].Bounds.First >= p.from.Next {
			fill(p.from.Next) // all is trimmed
		}
	}
	if len(e.Batches) == 0 {
		for i, p := range of {
			p.to.Next = now[i]
		}
		return nil
	}
	e.Checks = []eventlog.Check{{Key: c.scope.guard, Version: c.version}}
	out, err := c.to.Commit(ctx, []eventlog.Entry{e})
	if err == nil {
		err = out[0].Err
	}
	switch {
	case errors.Is(err, eventlog.ErrStale):
		return ErrTaken
	case err != nil:
		return fmt.Errorf("write %d batches to the target: %w", len(e.Batches), err)
	}
	for i, base := range out[0].Base {
		if base != want[i] {
			return differs("a batch of partition %d is at offset %d in the source and got %d in the target: somebody else writes to the target; delete it and begin anew", e.Batches[i].Partition, want[i], base)
		}
	}
	for i, p := range of {
		p.to.Next = now[i]
	}
	c.done.Records, c.done.Bytes = c.done.Records+records, c.done.Bytes+size
	c.report(c.done)
	return nil
}

// notCopied reports whether a key is about the store itself: its epochs, whether it is closed,
// copies of it, how far its partitions are compacted.
func notCopied(key string) bool {
	return key == eventlog.EpochKey || key == eventlog.ClosedKey || strings.HasPrefix(key, copyPrefix) || strings.HasPrefix(key, eventlog.CompactPrefix)
}

// copyKeys makes the target's keys those of the source.
func (c *Copy) copyKeys(ctx context.Context) error {
	var e eventlog.Entry
	size := 0
	flush := func() error {
		if len(e.Puts) == 0 {
			return nil
		}
		if err := c.commit(ctx, e); err != nil {
			return fmt.Errorf("put %d keys in the target: %w", len(e.Puts), err)
		}
		c.done.Keys += int64(len(e.Puts))
		e, size = eventlog.Entry{}, 0
		c.report(c.done)
		return nil
	}
	err := c.compareKeys(ctx, func(from, to eventlog.KeyValue) error {
		put := eventlog.Put{Key: from.Key, Version: from.Version, Value: from.Value}
		if from.Version == 0 {
			put = eventlog.Put{Key: to.Key, Version: to.Version.Next()}
		} else if put.Value == nil {
			put.Value = []byte{}
		}
		e.Puts = append(e.Puts, put)
		if size += len(put.Key) + len(put.Value); len(e.Puts) < keysMost && size < putBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// compareKeys calls visit for each key that is not the same in both stores, in their order. The
// version is 0 where the key does not exist.
func (c *Copy) compareKeys(ctx context.Context, visit func(from, to eventlog.KeyValue) error) error {
	for _, prefix := range c.scope.prefixes {
		if err := c.compareUnder(ctx, prefix, visit); err != nil {
			return err
		}
	}
	return nil
}

func (c *Copy) compareUnder(ctx context.Context, prefix string, visit func(from, to eventlog.KeyValue) error) error {
	from, to := pages{store: c.from, name: "source", prefix: prefix, has: c.scope.key}, pages{store: c.to, name: "target", prefix: prefix, has: c.scope.key}
	for {
		a, err := from.first(ctx)
		if err != nil {
			return err
		}
		b, err := to.first(ctx)
		if err != nil {
			return err
		}
		switch {
		case a == nil && b == nil:
			return nil
		case b == nil || a != nil && a.Key < b.Key:
			err = visit(*a, eventlog.KeyValue{})
			from.pop()
		case a == nil || b.Key < a.Key:
			err = visit(eventlog.KeyValue{}, *b)
			to.pop()
		default:
			if a.Version != b.Version || !bytes.Equal(a.Value, b.Value) {
				err = visit(*a, *b)
			}
			from.pop()
			to.pop()
		}
		if err != nil {
			return err
		}
	}
}

// pages reads, in order, the keys of a store that are copied.
type pages struct {
	store  eventlog.Store
	name   string
	prefix string
	has    func(key string) bool
	page   []eventlog.KeyValue
	after  string
	last   bool
}

// first returns the next key, nil after the last.
func (p *pages) first(ctx context.Context) (*eventlog.KeyValue, error) {
	for {
		for len(p.page) > 0 && !p.has(p.page[0].Key) {
			p.pop()
		}
		if len(p.page) > 0 {
			return &p.page[0], nil
		}
		if p.last {
			return nil, nil
		}
		page, err := p.store.List(ctx, p.prefix, p.after, keysMost)
		if err != nil {
			return nil, fmt.Errorf("list the keys of the %s after %q: %w", p.name, p.after, err)
		}
		p.page, p.last = page, len(page) < keysMost
		if len(page) > 0 {
			p.after = page[len(page)-1].Key
		}
	}
}

func (p *pages) pop() { p.page = p.page[1:] }
