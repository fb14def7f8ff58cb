package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// spansMost bounds the partitions that one call reads.
const spansMost = 64

const (
	restore = "restore this partition from a backup or a copy; to read on without these events, continue at a higher offset"
	reindex = "the events are intact, but searches by time miss them: copy the store with `weir copy`, which writes the index anew"
)

// walk is how far a partition was read.
type walk struct {
	eventlog.Partition
	topic    eventlog.Topic // without a name: no topic has it
	at, end  eventlog.Offset
	visitors []visiting
}

type visiting struct {
	check string
	visit Visitor
}

// readLog reads all partitions from their first offsets to the ends that they have now.
func (x *Exam) readLog(ctx context.Context, bounds []eventlog.Bounds, checks []Check) error {
	for _, b := range bounds {
		x.held += b.Bytes
	}
	for some := range slices.Chunk(bounds, spansMost) {
		var walks []*walk
		for _, b := range some {
			h := x.homes[b.Partition]
			w := &walk{Partition: b.Partition, topic: h.topic, at: b.First, end: b.Next}
			for _, c := range checks {
				if c.Visit == nil {
					continue
				}
				if visit := c.Visit(x, h.topic, h.number); visit != nil {
					w.visitors = append(w.visitors, visiting{c.Name, visit})
				}
			}
			walks = append(walks, w)
			x.result.Partitions++
		}
		if err := x.readSome(ctx, walks); err != nil {
			return err
		}
	}
	return nil
}

func (x *Exam) readSome(ctx context.Context, walks []*walk) error {
	for {
		walks = slices.DeleteFunc(walks, func(w *walk) bool { return w.at >= w.end })
		if len(walks) == 0 {
			return nil
		}
		spans := make([]eventlog.Span, len(walks))
		for i, w := range walks {
			spans[i] = eventlog.Span{Partition: w.Partition, From: w.at, MaxBytes: readBytes}
		}
		read, err := x.store.Read(ctx, spans, readBytes)
		if err != nil {
			return err
		}
		full := false // an earlier partition got batches, and perhaps all that fit
		for i, w := range walks {
			if err := x.step(ctx, w, read[i], full); err != nil {
				return fmt.Errorf("partition %d: %w", w.Partition, err)
			}
			full = full || len(read[i].Batches) > 0
		}
		x.progress()
	}
}

// step checks what was read of a partition, and goes on after it.
func (x *Exam) step(ctx context.Context, w *walk, read eventlog.Slice, full bool) error {
	if errors.Is(read.Err, eventlog.ErrNoPartition) {
		w.at = w.end // deleted meanwhile
		return nil
	}
	if w.at < read.Bounds.First {
		w.at = read.Bounds.First // trimmed meanwhile
		if len(read.Batches) == 0 || read.Batches[0].Base > w.at {
			return nil
		}
	}
	if len(read.Batches) == 0 && read.Err == nil && full {
		return nil // the others have used the call
	}
	good, bad := sound(w.at, read)
	from := w.at // where a look sees the trouble: the batch before it may be a part of it
	if good > 0 {
		from = max(w.at, read.Batches[good-1].Base)
	}
	if err := x.visit(ctx, w, read.Batches[:good]); err != nil {
		return err
	}
	if bad == nil {
		return nil
	}
	if err := x.Confirm(ctx, func(v *View) error { return v.lookFrom(ctx, w.Partition, from) }); err != nil {
		return err
	}
	if good > 0 && bad.next == 0 {
		return nil // a read from here may find a batch that begins here
	}
	return x.skip(ctx, w, bad)
}

// trouble is what is wrong at an offset. Reading can go on at next; 0: it is not known where.
type trouble struct {
	at, next eventlog.Offset
	what, do string
}

// sound returns how many of the batches that were read from an offset on are as they must be, and
// what is wrong after these; nil: nothing.
func sound(at eventlog.Offset, read eventlog.Slice) (good int, bad *trouble) {
	if damaged, is := errors.AsType[*eventlog.DamagedError](read.Err); is {
		return 0, &trouble{at, damaged.Next, "the batch cannot be read: " + damaged.Err.Error(), restore}
	}
	if read.Err != nil {
		return 0, &trouble{at, 0, "the batch cannot be read: " + read.Err.Error(), restore}
	}
	if len(read.Batches) == 0 && at < read.Bounds.Next {
		return 0, &trouble{at, 0, "the batch that holds this offset is missing, though the partition goes on", restore}
	}
	for i, b := range read.Batches {
		if bad := wrong(at, b, i == 0, read.Bounds); bad != nil {
			return i, bad
		}
		at = b.End()
	}
	return len(read.Batches), nil
}

// wrong returns what is wrong with one batch.
func wrong(at eventlog.Offset, b eventlog.Placed, first bool, bounds eventlog.Bounds) *trouble {
	end := b.End()
	if damaged := eventlog.CheckPlaced(at, b, first); damaged != nil {
		return &trouble{at, damaged.Next, "the batch is damaged: " + damaged.Err.Error(), restore}
	}
	h, err := batch.Parse(b.Bytes)
	if err == nil {
		for _, err = range b.Decode() {
			if err != nil {
				break
			}
		}
	}
	switch {
	case err != nil:
		return &trouble{at, end, fmt.Sprintf("the records of the batch [%d, %d) cannot be read: %v", b.Base, end, err), restore}
	case int64(b.MaxTime) != h.MaxTimestamp:
		return &trouble{at, end, fmt.Sprintf("the index of the store has the time %d for the batch [%d, %d), whose newest record is of %d", b.MaxTime, b.Base, end, h.MaxTimestamp), reindex}
	case end > bounds.Next:
		return &trouble{at, end, fmt.Sprintf("the batch has the offsets [%d, %d), but the partition ends at %d", b.Base, end, bounds.Next), restore}
	}
	return nil
}

// lookFrom looks again at the batch that holds an offset, and at some that follow.
func (v *View) lookFrom(ctx context.Context, p eventlog.Partition, from eventlog.Offset) error {
	if _, err := v.Get(ctx, eventlog.ReplacedKey(p)); err != nil { // compaction changes it
		return err
	}
	read, err := v.Read(ctx, p, from, readBytes)
	if err != nil || errors.Is(read.Err, eventlog.ErrNoPartition) {
		return err
	}
	if from < read.Bounds.First { // trimmed meanwhile
		if from = read.Bounds.First; len(read.Batches) == 0 {
			return nil
		}
	}
	if _, bad := sound(from, read); bad != nil {
		v.Find(v.x.Place(p, bad.at), bad.do, "%s", bad.what)
	}
	return nil
}

// skip goes on after what cannot be read.
func (x *Exam) skip(ctx context.Context, w *walk, bad *trouble) error {
	from := w.at
	if w.at = max(bad.next, from); bad.next > from {
		return nil
	}
	// The first batch whose time is not older than the oldest time: where the next batch begins.
	found, err := x.store.Seek(ctx, []eventlog.Goal{{Partition: w.Partition, At: math.MinInt64, From: from + 1}})
	if err != nil {
		return err
	}
	if w.at = w.end; found[0].Err == nil && found[0].At > from+1 && found[0].At < w.end {
		w.at = found[0].At
	}
	return nil
}

// visit passes sound batches on, and sees whether a search by time finds them.
func (x *Exam) visit(ctx context.Context, w *walk, sound []eventlog.Placed) error {
	if len(sound) == 0 {
		return nil
	}
	from := w.at
	last := sound[len(sound)-1]
	w.at = last.End()
	for _, b := range sound {
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			return err
		}
		x.result.Batches++
		x.result.Records += int64(h.Records)
		x.read += int64(len(b.Bytes))
	}
	if err := x.seek(ctx, w.Partition, from, sound); err != nil {
		return err
	}
	for _, v := range w.visitors {
		if err := x.as(v.check, func() error { return v.visit(ctx, sound) }); err != nil {
			return fmt.Errorf("%s: %w", v.check, err)
		}
	}
	return nil
}

// seek sees whether a search from an offset on finds the newest of the batches that begin there.
func (x *Exam) seek(ctx context.Context, p eventlog.Partition, from eventlog.Offset, sound []eventlog.Placed) error {
	newest := sound[0]
	for _, b := range sound {
		if b.MaxTime > newest.MaxTime {
			newest = b
		}
	}
	look := func(from eventlog.Offset) (eventlog.Found, error) {
		found, err := x.store.Seek(ctx, []eventlog.Goal{{Partition: p, At: newest.MaxTime, From: from}})
		if err != nil {
			return eventlog.Found{}, err
		}
		return found[0], nil
	}
	want := max(from, newest.Base)
	if found, err := look(from); err != nil || found.Err == nil && found.At == want {
		return err
	}
	return x.Confirm(ctx, func(v *View) error {
		if _, err := v.Get(ctx, eventlog.ReplacedKey(p)); err != nil {
			return err
		}
		read, err := v.Read(ctx, p, newest.Base, 1)
		if err != nil {
			return err
		}
		if len(read.Batches) == 0 || read.Batches[0].Base != newest.Base || read.Batches[0].MaxTime != newest.MaxTime {
			return nil // trimmed or compacted meanwhile
		}
		at := max(from, read.Bounds.First)
		found, err := look(at)
		if err != nil || errors.Is(found.Err, eventlog.ErrNoPartition) {
			return err
		}
		if want := max(at, newest.Base); found.Err != nil || found.At != want {
			v.Find(x.Place(p, newest.Base), reindex, "a search from offset %d on for the time %d of the batch at offset %d finds %d (%v)", from, newest.MaxTime, newest.Base, found.At, found.Err)
		}
		return nil
	})
}
