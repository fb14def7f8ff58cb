package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// writersMax is how many streams' heads one process remembers at most.
const writersMax = 10_000

// writer appends to one stream: operations that wait while an entry is in flight share the next
// entry. It remembers the stream's head, so that an append costs one store call. Two writers of a
// stream, in one process or in two, do no harm: each entry checks the head.
type writer struct {
	c      *Category
	stream string

	mu      sync.Mutex // guards what follows, and op.among
	queued  []*op
	working bool
	held    bool // the last entry was refused because a transaction holds the stream

	// What follows belongs to the goroutine that works.
	known bool
	head  head // if known: as this process last read or wrote it
}

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
			if w.idle() {
				delete(s.writers, key)
			}
			if len(s.writers) <= writersMax/2 {
				break
			}
		}
	}
	w := &writer{c: c, stream: stream}
	s.writers[key] = w
	return w
}

func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.working
}

// taken is a group of operations that are carried out together.
type taken struct {
	awaited int // how many callers wait for an operation of the group
	giveUp  context.CancelCauseFunc
}

// leave notes that an operation's caller waits no longer, and reports whether it was the last
// caller that waited for the group, o.among.
func (w *writer) leave(o *op) (last bool) {
	if o.among == nil {
		return false
	}
	o.among.awaited--
	return o.among.awaited == 0
}

// giveUpTime is how long a caller still waits for the outcome after its ctx ended, if it was the
// last caller of its group, or a transaction holds the stream.
const giveUpTime = time.Second

// While a transaction holds a stream (eventlog.ErrHeld), its writer tries again after a pause:
// heldPause at first, heldPauseMax later.
const (
	heldPause    = 2 * time.Millisecond
	heldPauseMax = 50 * time.Millisecond
)

// do queues an operation and waits for its result. If ctx ends while the operation is queued, it is
// withdrawn (eventlog.ErrUnavailable). If ctx ends later, its group is given up if no other caller
// waits for the group, and the operation's outcome may be unknown (eventlog.ErrUnsure).
//
// While a transaction holds the stream, the operation is queued between two attempts. During an
// attempt, do waits for its outcome even if ctx has ended, at most giveUpTime.
func (w *writer) do(ctx context.Context, o *op) (Appended, error) {
	if err := ctx.Err(); err != nil {
		return Appended{}, fmt.Errorf("%w: the append was not sent (%w)", eventlog.ErrUnavailable, err)
	}
	began := time.Now()
	w.mu.Lock()
	w.queued = append(w.queued, o)
	if !w.working {
		w.working = true
		go w.work()
	}
	w.mu.Unlock()
	select {
	case <-o.done:
		w.mu.Lock()
		w.leave(o)
		w.mu.Unlock()
		return o.result, o.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	i := slices.Index(w.queued, o)
	if i >= 0 {
		w.queued = slices.Delete(w.queued, i, i+1)
	}
	held, among := w.held, o.among
	last := w.leave(o)
	o.left = true
	w.mu.Unlock()
	switch {
	case i >= 0 && held:
		return Appended{}, heldError(context.Cause(ctx))
	case i >= 0:
		return Appended{}, fmt.Errorf("%w: gave up while waiting for earlier appends to the stream (%w)", w.c.owner.log.Late(began), context.Cause(ctx))
	}
	if held {
		o.await(giveUpTime)
	}
	if last {
		among.giveUp(context.Cause(ctx))
		o.await(giveUpTime)
	}
	select {
	case <-o.done:
		if errors.Is(o.err, eventlog.ErrHeld) {
			return Appended{}, heldError(context.Cause(ctx))
		}
		return o.result, o.err
	default:
		return Appended{}, fmt.Errorf("%w: gave up while waiting for the store (%w)", eventlog.ErrUnsure, context.Cause(ctx))
	}
}

// await waits until the operation is answered, at most for d.
func (o *op) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

func heldError(cause error) error {
	return fmt.Errorf("%w: gave up while a transaction that appends with SQL holds the stream; nothing was appended (%w)", eventlog.ErrHeld, cause)
}

// work carries out queued operations until there are none. It also ends when the log is closed,
// because every call fails then. A group is given up when no caller waits for it any more:
// otherwise it could have an effect that nobody expects, and it would stay in memory while the
// store is unavailable.
func (w *writer) work() {
	for pause := heldPause; ; {
		w.mu.Lock()
		held := w.held
		w.mu.Unlock()
		if held {
			time.Sleep(pause)
			pause = min(2*pause, heldPauseMax)
		} else {
			pause = heldPause
		}
		w.mu.Lock()
		ops := w.queued
		w.queued = nil
		w.working = len(ops) > 0
		w.held = w.held && w.working
		ctx, giveUp := context.WithCancelCause(context.Background())
		together := &taken{awaited: len(ops), giveUp: giveUp}
		for _, o := range ops {
			o.among = together
		}
		w.mu.Unlock()
		if len(ops) > 0 {
			w.carryOut(ctx, ops)
		}
		giveUp(nil)
		if len(ops) == 0 {
			return
		}
	}
}

// answer ends an operation.
func (o *op) answer(result Appended, err error) {
	o.result, o.err = result, err
	close(o.done)
}

func failAll(ops []*op, err error) {
	for _, o := range ops {
		o.answer(Appended{}, err)
	}
}

// carryOut commits operations, as many in one entry as fit, and refuses those that conflict. It
// refuses an operation only if it conflicts with a head that was read or committed after the
// operation was queued.
func (w *writer) carryOut(ctx context.Context, ops []*op) {
	topic, err := w.c.knownTopic()
	if err != nil {
		failAll(ops, err)
		return
	}
	for fresh := false; len(ops) > 0; {
		if !w.known {
			if w.head, err = w.c.readHead(ctx, w.stream); err != nil {
				failAll(ops, err)
				return
			}
			w.known, fresh = true, true
		}
		accepted, refused, rest := judge(ops, w.head, topic.MaxMessageBytes())
		switch {
		case len(accepted) > 0:
			again, committed, err := w.commit(ctx, topic, accepted)
			if errors.Is(err, eventlog.ErrHeld) {
				w.requeue(slices.Concat(again, refused, rest))
				return
			}
			w.setHeld(false)
			if err != nil {
				failAll(again, err)
				again = nil
			}
			fresh = committed || fresh && w.known
			ops = slices.Concat(again, refused, rest)
		case !fresh:
			w.known = false
		default:
			if slices.ContainsFunc(refused, func(o *op) bool { return o.mayYetFit(w.head) }) {
				err := w.c.owner.confirm(ctx, eventlog.Check{Key: w.c.key(headPrefix, w.stream), Version: w.head.version})
				switch {
				case errors.Is(err, eventlog.ErrHeld):
					w.requeue(slices.Concat(refused, rest))
					return
				case errors.Is(err, eventlog.ErrStale):
					w.known, fresh = false, false
					continue
				case err != nil:
					failAll(slices.Concat(refused, rest), err)
					return
				}
				w.setHeld(false)
			}
			for _, o := range refused {
				o.answer(w.refuse(ctx, o))
			}
			ops, fresh = rest, false
		}
	}
}

// mayYetFit reports whether a head that does not allow an operation could allow it after more
// events: some may be appended with SQL, and not be carried yet.
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

// requeue puts operations that a held stream refused back at the head of the queue, and answers
// those whose callers wait no longer.
func (w *writer) requeue(ops []*op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
	for _, o := range ops {
		o.among = nil
	}
	left := func(o *op) bool {
		if o.left {
			o.answer(Appended{}, eventlog.ErrHeld)
		}
		return o.left
	}
	w.queued = append(slices.DeleteFunc(ops, left), w.queued...)
}

func (w *writer) setHeld(held bool) {
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
}

// judge divides operations into those that one entry can carry out, one after the other; those that
// the head does not allow, or whose id key is in the entry already; and the rest, which need
// another entry.
func judge(ops []*op, h head, most int) (accepted, refused, rest []*op) {
	size, decoded := 0, 0
	ids := make(map[string]bool)
	for i, o := range ops {
		if len(accepted) > 0 && (size+o.size > most || decoded+o.decoded > batch.DecodedMax || o.alone() || accepted[0].alone() || o.within != nil) {
			return accepted, refused, ops[i:]
		}
		if !o.allowedAt(h) || ids[o.idKey] {
			refused = append(refused, o)
			continue
		}
		if o.idKey != "" {
			ids[o.idKey] = true
		}
		accepted, size, decoded = append(accepted, o), size+o.size, decoded+o.decoded
		h = o.after(h)
	}
	return accepted, refused, nil
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

// refuse answers an operation that the head does not allow.
func (w *writer) refuse(ctx context.Context, o *op) (Appended, error) {
	if o.snapshot != nil {
		return Appended{}, refusedSnapshot(o.snapshot.Version, w.head)
	}
	if o.unless != nil && o.unless(w.head) || o.alone() && o.edit == nil && !w.head.exists() && o.expected.allows(w.head) {
		return Appended{First: w.head.Next, Version: w.head.Next, Duplicate: true}, nil
	}
	if done, is, err := w.c.found(ctx, o); is || err != nil {
		return done, err
	}
	return Appended{}, w.c.conflict(o, w.head)
}

func (c *Category) conflict(o *op, h head) error {
	if h.Archived && o.expected.allows(h) {
		return ErrArchived
	}
	return &ConflictError{Category: c.Name(), Stream: o.stream, Expected: o.expected, Actual: h.Next, Exists: h.exists()}
}

// commit carries operations out with one entry and answers them. The operations that it returns
// must be judged again or, if there is an error, answered with the error. committed reports whether
// the entry was committed, so that w.head is the head after it.
func (w *writer) commit(ctx context.Context, topic eventlog.Topic, ops []*op) (again []*op, committed bool, err error) {
	heads := w.c.tagsOf(make(tagHeads), ops...)
	if err := w.c.owner.readTags(ctx, heads); err != nil {
		return ops, false, err
	}
	if !ops[0].allowedBy(heads) { // an operation with a boundary is the first of its entry
		done, is, err := w.c.found(ctx, ops[0])
		if !is && err == nil {
			err = ErrBoundary
		}
		ops[0].answer(done, err)
		return ops[1:], false, nil
	}
	var e eventlog.Entry
	after, results, err := w.c.change(&e, topic, w.stream, w.head, heads, ops)
	if err != nil {
		return ops, false, err
	}
	heads.write(&e)
	_, err = w.c.owner.log.Append(ctx, e)
	switch {
	case err == nil:
		w.head = after
		for i, o := range ops {
			o.answer(results[i], nil)
		}
		return nil, true, nil
	case errors.Is(err, eventlog.ErrStale):
		w.known = false
		for _, o := range ops {
			if o.idKey == "" {
				again = append(again, o)
				continue
			}
			done, is, err := w.c.found(ctx, o)
			if is || err != nil {
				o.answer(done, err)
			} else {
				again = append(again, o)
			}
		}
		return w.protect(ctx, again), false, nil
	case errors.Is(err, eventlog.ErrNoPartition):
		err = fmt.Errorf("%w: the category was deleted", ErrUnknownCategory)
	}
	w.known = false
	return ops, false, err
}

// protect encrypts operations' events again, since a subject's key may have been destroyed, and
// returns them. Operations for which that fails are answered, and not returned.
func (w *writer) protect(ctx context.Context, ops []*op) []*op {
	return slices.DeleteFunc(ops, func(o *op) bool {
		if len(o.keys) == 0 {
			return false
		}
		err := w.c.protect(ctx, o, true)
		if err != nil {
			o.answer(Appended{}, err)
		}
		return err != nil
	})
}

// change adds to an entry what operations change: the stream, whose head is h, and the heads of
// tags. It returns the head after them, and their results.
func (c *Category) change(e *eventlog.Entry, topic eventlog.Topic, stream string, h head, heads tagHeads, ops []*op) (after head, results []Appended, err error) {
	key := c.key(headPrefix, stream)
	e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: h.version, Holdable: true})
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
	e.Puts = append(append(e.Puts, eventlog.Put{Key: key, Version: after.version, Value: after.encode()}), others...)
	return after, results, nil
}
