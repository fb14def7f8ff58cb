package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/ledger"
)

// writersMax is how many streams' heads one process remembers at most.
const writersMax = 10_000

// writer appends to one stream: operations that wait while an entry is on its way share the next
// one. It remembers the stream's head, so that an append costs one store call.
type writer struct {
	*ledger.Writer[known, *op, Appended]
	c      *Category
	stream string
}

// known is what a stream's operations are judged by.
type known struct {
	head
	tags tagHeads // the heads of the operations' tags, as prepare has read them
}

// call is an operation that somebody waits for.
type call = ledger.Op[*op, Appended]

// writer returns the writer of a stream. If there are too many writers it drops some idle ones.
func (s *Streams) writer(c *Category, stream string) *writer {
	key := c.key(headPrefix, stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.writers[key]; w != nil {
		return w
	}
	if len(s.writers) >= writersMax {
		for key, w := range s.writers {
			if w.Idle() {
				delete(s.writers, key)
			}
			if len(s.writers) <= writersMax/2 {
				break
			}
		}
	}
	w := newWriter(c, stream, key)
	s.writers[key] = w
	return w
}

func newWriter(c *Category, stream, key string) *writer {
	w := &writer{c: c, stream: stream}
	w.Writer = ledger.New(ledger.Rules[known, *op, Appended]{
		Log: c.owner.log, Key: key, Holdable: true, Unknown: ledger.Report,
		Read: w.read, New: w.mayBegin, Prepare: w.prepare, Judge: w.judge,
		Start: func(work func(context.Context)) bool { go work(context.Background()); return true }, // it ends when the log is closed, because every call fails then
	})
	return w
}

// do carries out an operation, see ledger.Writer.Do.
func (w *writer) do(ctx context.Context, o *op) (Appended, error) {
	done, err := w.Do(ctx, o)
	switch {
	case errors.Is(err, eventlog.ErrHeld):
		err = heldError(context.Cause(ctx))
	case errors.Is(err, eventlog.ErrNoPartition):
		err = fmt.Errorf("%w: the category was deleted", ErrUnknownCategory)
	}
	return done, err
}

func heldError(cause error) error {
	return fmt.Errorf("%w: gave up while a transaction that appends with SQL holds the stream; nothing was appended (%w)", eventlog.ErrHeld, cause)
}

func (w *writer) read(ctx context.Context) (k known, kv eventlog.KeyValue, err error) {
	key, err := w.c.headKey(w.stream)
	if err == nil {
		kv, err = w.c.owner.log.Get(ctx, key)
	}
	if err == nil {
		k.head, err = headIn(kv)
	}
	return k, kv, err
}

// prepare returns the operations that one entry can carry out, and reads the heads of their tags.
// If there is no such operation, it refuses those that the head does not allow.
func (w *writer) prepare(ctx context.Context, k known, calls []*call) (known, []*call, error) {
	topic, err := w.c.knownTopic()
	if err != nil {
		return k, nil, err
	}
	accepted, refused, _ := divide(w.again(ctx, calls), k.head, topic.MaxMessageBytes())
	if len(accepted) == 0 {
		return k, nil, w.refuse(ctx, k.head, refused)
	}
	k.tags = w.c.tagsOf(make(tagHeads), opsOf(accepted)...)
	if err := w.c.owner.readTags(ctx, k.tags); err != nil {
		return k, accepted, err
	}
	if first := accepted[0]; !w.c.allows(first.Do.within, k.tags) { // an operation with a boundary is the first of its entry
		done, is, err := w.c.found(ctx, first.Do)
		if !is && err == nil {
			err = ErrBoundary
		}
		first.Answer(done, err)
		return k, nil, nil
	}
	return k, accepted, nil
}

// again prepares operations whose entry was refused as stale: one that was carried out before is
// answered, and the events of the others are encrypted again, since a subject's key may have been
// destroyed. It returns those that are not answered.
func (w *writer) again(ctx context.Context, calls []*call) (left []*call) {
	for _, o := range calls {
		var done Appended
		var is bool
		var err error
		if o.Stale && o.Do.idKey != "" {
			done, is, err = w.c.found(ctx, o.Do)
		}
		if o.Stale && !is && err == nil && len(o.Do.keys) > 0 {
			err = w.c.protect(ctx, o.Do, true)
		}
		if o.Stale = false; is || err != nil {
			o.Answer(done, err)
		} else {
			left = append(left, o)
		}
	}
	return left
}

// refuse answers operations that the head does not allow. If the head is not proven for every one
// of them (ledger.Op.Proven), it answers none, and eventlog.ErrStale asks for a newer head.
func (w *writer) refuse(ctx context.Context, h head, refused []*call) error {
	if slices.ContainsFunc(refused, func(o *call) bool { return !o.Proven }) {
		return eventlog.ErrStale
	}
	if slices.ContainsFunc(refused, func(o *call) bool { return o.Do.mayYetFit(h) }) {
		if err := w.c.owner.confirm(ctx, eventlog.Check{Key: w.c.key(headPrefix, w.stream), Version: h.version}); err != nil {
			return err
		}
	}
	for _, o := range refused {
		o.Answer(w.refusal(ctx, h, o.Do))
	}
	return nil
}

// judge carries out operations: prepare has found that all of them can be.
func (w *writer) judge(k known, next eventlog.Version, calls []*call) (j ledger.Judged[known, Appended]) {
	topic, err := w.c.knownTopic()
	if err != nil {
		return ledger.Judged[known, Appended]{Err: err}
	}
	after, results, err := w.c.change(&j.Entry, topic, w.stream, k.head, k.tags, opsOf(calls))
	if err != nil {
		return ledger.Judged[known, Appended]{Err: err}
	}
	after.version = next
	for _, o := range calls {
		j.Entry.Batches = append(j.Entry.Batches, o.Do.told...)
	}
	k.tags.write(&j.Entry)
	for _, done := range results {
		j.Answers = append(j.Answers, ledger.Answer[Appended]{Value: done})
	}
	j.Changes, j.Next, j.Value = true, known{head: after}, after.encode()
	return j
}

func opsOf(calls []*call) []*op {
	ops := make([]*op, len(calls))
	for i, o := range calls {
		ops[i] = o.Do
	}
	return ops
}

// mayYetFit reports whether a head that does not allow an operation could allow it after more
// events: events that were appended with SQL may not have been carried to the stream yet.
func (o *op) mayYetFit(h head) bool {
	return int64(o.expected) > h.Next || !h.exists() && (o.expected == Exists || o.alone()) || o.snapshot != nil && o.snapshot.Version > h.Next
}

// confirm checks that heads are as they were read, and that nothing waits to be carried to them:
// eventlog.ErrStale or eventlog.ErrHeld if not.
func (s *Streams) confirm(ctx context.Context, heads ...eventlog.Check) error {
	for i := range heads {
		heads[i].Holdable = true
	}
	_, err := s.log.Append(ctx, eventlog.Entry{Checks: heads})
	return notAppended(err)
}

// divide divides operations into those that one entry can carry out, one after the other; those
// that the head does not allow, or whose id key is in the entry already; and the rest, which need
// another entry.
func divide(calls []*call, h head, most int) (accepted, refused, rest []*call) {
	size, decoded := 0, 0
	ids := make(map[string]bool)
	for i, c := range calls {
		o := c.Do
		if len(accepted) > 0 && (size+o.size > most || decoded+o.decoded > batch.DecodedMax || o.alone() || accepted[0].Do.alone() || o.within != nil) {
			return accepted, refused, calls[i:]
		}
		if !o.allowedAt(h) || ids[o.idKey] {
			refused = append(refused, c)
			continue
		}
		if o.idKey != "" {
			ids[o.idKey] = true
		}
		accepted, size, decoded = append(accepted, c), size+o.size, decoded+o.decoded
		h = o.after(h)
	}
	return accepted, refused, nil
}

// mayBegin reports whether an operation expects that there is no stream, or that it is at version
// 0: then the writer may try it without reading the head first (ledger.Rules.New).
func (w *writer) mayBegin(o *op) bool {
	return checkName(w.stream) == nil && !o.alone() && (o.expected == 0 || o.expected == NoStream)
}

// alone reports whether an operation is not an append, and so has an entry of its own.
func (o *op) alone() bool { return len(o.events) == 0 }

func (o *op) allowedAt(h head) bool {
	if s := o.snapshot; s != nil && (s.Version > h.Next || !h.hasState(s.Version)) {
		return false
	}
	if o.unless != nil && o.unless(h) {
		return false
	}
	return o.expected.allows(h) && (!o.alone() || h.exists()) && (o.alone() || !h.Archived)
}

// after returns the head after an operation.
func (o *op) after(h head) head {
	switch {
	case o.edit != nil:
		h = o.edit(h)
	case o.deletes:
		h.First, h.Born, h.Deleted, h.Archived = h.Next, h.Next, true, false
	case o.snapshot != nil:
	case o.alone():
		h.First = max(h.First, min(o.keep, h.Next))
	default:
		h.Next, h.Deleted, h.Bytes = h.Next+int64(len(o.events)), false, h.Bytes+int64(o.size)
		for i := range o.records {
			size := int64(batch.SealedSize(&o.records[i]))
			h.Largest, h.Memory = max(h.Largest, size), max(h.Memory, size+int64(o.records[i].DecodedSize()))
		}
	}
	h.version = max(h.version, 1)
	return h
}

// refusal is the answer to an operation that the head does not allow.
func (w *writer) refusal(ctx context.Context, h head, o *op) (Appended, error) {
	if o.snapshot != nil {
		return Appended{}, refusedSnapshot(o.snapshot.Version, h)
	}
	if o.unless != nil && o.unless(h) || o.alone() && o.edit == nil && !h.exists() && o.expected.allows(h) {
		return Appended{First: h.Next, Version: h.Next, Duplicate: true}, nil
	}
	if done, is, err := w.c.found(ctx, o); is || err != nil {
		return done, err
	}
	return Appended{}, w.c.conflict(o, h)
}

func (c *Category) conflict(o *op, h head) error {
	if h.Archived && o.expected.allows(h) {
		return ErrArchived
	}
	return &ConflictError{Category: c.Name(), Stream: o.stream, Expected: o.expected, Actual: h.Next, Exists: h.exists()}
}

// change adds to an entry what operations change, but neither the stream's head (changeHead) nor
// the heads of tags (tagHeads.write). h is the stream's head before the operations. change returns
// the head after them, and their results.
func (c *Category) change(e *eventlog.Entry, topic eventlog.Topic, stream string, h head, heads tagHeads, ops []*op) (after head, results []Appended, err error) {
	after = h
	if h.version == 0 {
		after.Partition = partitionOf(topic, stream)
	}
	var records []batch.Record
	var others []eventlog.Put
	for _, o := range ops {
		first := after.Next
		after = o.after(after)
		results = append(results, Appended{First: first, Version: after.Next})
		for i := range o.records {
			if !o.alone() {
				setVersion(&o.records[i], first+int64(i))
				others = append(others, c.tag(heads, &o.events[i], &o.records[i], stream, first+int64(i))...)
			}
			records = append(records, o.records[i])
		}
		for _, k := range o.keys {
			if !slices.Contains(e.Checks, k) {
				e.Checks = append(e.Checks, k)
			}
		}
		if o.idKey != "" {
			e.Checks = append(e.Checks, eventlog.Check{Key: o.idKey})
			others = append(others, eventlog.Put{Key: o.idKey, Version: eventlog.Version(0).Next(), Value: strconv.AppendInt(nil, first, 10)})
		}
		if s := o.snapshot; s != nil {
			others = append(others, eventlog.Put{Key: c.snapshotKey(stream, s.Version), Version: eventlog.Version(0).Next(), Value: append([]byte{1}, s.Data...)})
		} else if o.alone() && o.edit == nil {
			others = append(others, eventlog.Put{Key: c.key(gonePrefix, stream), Version: eventlog.Version(0).Next(), Value: after.encode()})
		}
	}
	if len(records) > 0 {
		b, err := topic.Seal(after.Partition, records)
		if err != nil {
			return head{}, nil, err
		}
		e.Batches = append(e.Batches, b)
		for i := range int(after.Next - h.Next) {
			value, err := batch.Seal(records[i:i+1], batch.None)
			if err != nil {
				return head{}, nil, err
			}
			others = append(others, eventlog.Put{Key: c.eventKey(stream, h.Next+int64(i)), Version: 1, Value: value})
		}
	}
	after.version = h.version.Next()
	e.Puts = append(e.Puts, others...)
	return after, results, nil
}

// changeHead adds the change of a stream's head to an entry.
func (c *Category) changeHead(e *eventlog.Entry, stream string, before, after head) {
	key := c.key(headPrefix, stream)
	e.Checks = slices.Insert(e.Checks, 0, eventlog.Check{Key: key, Version: before.version, Holdable: true})
	e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: after.version, Value: after.encode()})
}
