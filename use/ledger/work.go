package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// work carries out operations until there are none.
func (w *Writer[S, O, A]) work(run context.Context) {
	ctx, end := run, func() {}
	defer func() { end() }()
	for pause := heldPause; ; {
		if w.isHeld() {
			time.Sleep(pause) // the operations are queued meanwhile
			pause = min(2*pause, heldPauseMax)
		} else {
			pause = heldPause
		}
		if len(w.taken) == 0 {
			end()
			if ctx, end = w.begin(run); ctx == nil {
				return
			}
		}
		_, known := w.Known()
		switch {
		case w.lost != nil:
			w.resolve(ctx)
		case !known:
			w.read(ctx)
		default:
			w.change(ctx)
		}
	}
}

// begin begins with the operations that are queued. Its ctx ends when they are given up, or with
// run; it is nil if there are none.
func (w *Writer[S, O, A]) begin(run context.Context) (ctx context.Context, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queued) == 0 {
		w.working, w.held = false, false
		return nil, func() {}
	}
	if w.rules.Prepare != nil {
		w.take(len(w.queued))
	}
	if w.rules.Unknown == Resolve {
		return run, func() {}
	}
	ctx, w.giveUp = context.WithCancelCause(run)
	giveUp := w.giveUp
	return ctx, func() { giveUp(nil) }
}

// take takes n queued operations, or fewer if they are to be committed one by one. The caller holds
// w.mu.
func (w *Writer[S, O, A]) take(n int) {
	if w.oneByOne > 0 {
		if len(w.taken) > 0 {
			return
		}
		n, w.oneByOne = 1, w.oneByOne-1
	}
	n = min(n, len(w.queued))
	w.taken = append(w.taken, w.queued[:n]...)
	w.queued = slices.Delete(w.queued, 0, n)
	w.awaited += n
}

// takeMore takes the queued operations that fit into an entry with those taken. It returns how many
// were queued so far.
func (w *Writer[S, O, A]) takeMore() (count uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all iter.Seq[O] = func(yield func(O) bool) {
		for _, ops := range [][]*Op[O, A]{w.taken, w.queued} {
			for _, o := range ops {
				if !yield(o.Do) {
					return
				}
			}
		}
	}
	had := len(w.taken)
	w.take(max(w.rules.Take(w.state, all), had, 1) - had)
	return w.count
}

// read reads the state, or takes it to be the zero state (Rules.New).
func (w *Writer[S, O, A]) read(ctx context.Context) {
	count := w.counted()
	if w.mayBeNew() {
		var zero S
		w.keep(zero, 0, 0)
		return
	}
	s, kv, err := w.rules.Read(ctx)
	if err == nil {
		w.keep(s, kv.Version, count)
		return
	}
	givenUp := len(w.taken) > 0 && ctx.Err() != nil
	w.fail(w.taken, err)
	if !givenUp { // if those taken were given up, the error is not about those that are queued
		w.failQueued(err)
	}
}

// mayBeNew reports, once for each Writer, whether there may be no such key.
func (w *Writer[S, O, A]) mayBeNew() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.asked
	w.asked = true
	return first && w.rules.New != nil && len(w.taken) > 0 &&
		!slices.ContainsFunc(w.taken, func(o *Op[O, A]) bool { return !w.rules.New(o.Do) })
}

// attempt is one try to carry out operations with an entry.
type attempt[S, O, A any] struct {
	ops    []*Op[O, A]
	judged Judged[S, A]
	next   eventlog.Version // that the key gets
	asOf   uint64           // if the entry is committed: how many operations were queued when it was sent
	err    error
}

// change judges operations, and commits what they change.
func (w *Writer[S, O, A]) change(ctx context.Context) {
	a := attempt[S, O, A]{next: w.version.Next()}
	if w.rules.Prepare == nil {
		w.late(ctx, &a)
	} else {
		w.early(ctx, &a)
	}
	w.conclude(ctx, &a)
}

// late takes and judges operations when the log gathers its next flush.
func (w *Writer[S, O, A]) late(ctx context.Context, a *attempt[S, O, A]) {
	ticket := w.rules.Log.SubmitLate(ctx, w.rules.Size(w.state), func() (e eventlog.Entry, changes bool) {
		a.asOf = w.takeMore()
		a.judged = w.judge(w.state, a.next, w.taken)
		return w.entry(a.judged, a.next), a.judged.Changes
	})
	_, err := ticket.Wait(ctx)
	a.ops, a.err = w.taken, cmp.Or(a.judged.Err, err)
}

// early prepares the operations that are taken, and judges those that are ready.
func (w *Writer[S, O, A]) early(ctx context.Context, a *attempt[S, O, A]) {
	for _, o := range w.taken {
		o.Proven = o.number <= w.asOf
	}
	before := len(w.taken)
	with, now, err := w.rules.Prepare(ctx, w.state, slices.Clone(w.taken))
	w.answerPrepared()
	switch {
	case err != nil && len(now) == 0:
		a.ops, a.err = w.taken, err
	case err != nil:
		a.ops, a.err = now, err
	case len(now) == 0 && len(w.taken) == before:
		panic(fmt.Sprintf("ledger: Prepare makes none of %d operations ready, for key %s", before, w.rules.Key))
	case len(now) > 0:
		a.ops, a.asOf = now, w.counted()
		if a.judged = w.judge(with, a.next, now); a.judged.Changes {
			_, a.err = w.rules.Log.Append(ctx, w.entry(a.judged, a.next))
		}
		a.err = cmp.Or(a.judged.Err, a.err)
	}
}

// judge calls Judge, and notes that the operations were judged.
func (w *Writer[S, O, A]) judge(s S, next eventlog.Version, ops []*Op[O, A]) Judged[S, A] {
	for _, o := range ops {
		o.Proven = o.number <= w.asOf
	}
	j := w.rules.Judge(s, next, ops)
	j.Changes = j.Changes && j.Err == nil
	if j.Err == nil && len(j.Answers) != len(ops) {
		panic(fmt.Sprintf("ledger: Judge gave %d answers for %d operations, for key %s", len(j.Answers), len(ops), w.rules.Key))
	}
	for _, o := range ops {
		o.Stale = false
	}
	return j
}

// entry returns the entry that makes a change of the known state.
func (w *Writer[S, O, A]) entry(j Judged[S, A], next eventlog.Version) eventlog.Entry {
	e := j.Entry
	if !j.Changes {
		return e
	}
	e.Checks = slices.Insert(e.Checks, 0, eventlog.Check{Key: w.rules.Key, Version: w.version, Holdable: w.rules.Holdable})
	e.Puts = slices.Insert(e.Puts, 0, eventlog.Put{Key: w.rules.Key, Version: next, Value: j.Value})
	return e
}

// conclude handles the outcome of an attempt.
func (w *Writer[S, O, A]) conclude(ctx context.Context, a *attempt[S, O, A]) {
	w.setHeld(errors.Is(a.err, eventlog.ErrHeld))
	if a.err == nil {
		w.stales = 0
		if a.judged.Changes {
			w.keep(a.judged.Next, a.next, a.asOf)
			w.answer(a.ops, a.judged.Answers)
		} else {
			w.answerProven(a)
		}
		return
	}
	w.Forget()
	switch {
	case errors.Is(a.err, eventlog.ErrStale):
		for _, o := range a.ops {
			o.Stale = a.judged.Changes
		}
		if w.stales++; w.stales > staleMax {
			eventlog.Pause(ctx, 1)
		}
	case errors.Is(a.err, eventlog.ErrHeld):
		w.putBack(a.err)
	case errors.Is(a.err, eventlog.ErrUnsure) && a.judged.Changes && w.rules.Unknown == Resolve && ctx.Err() == nil:
		w.lost = &lostEntry[A]{from: w.version, value: a.judged.Value, answers: a.judged.Answers}
	case len(w.taken) > 1 && IsRefusal(a.err): // one by one: only one may be the cause
		w.oneByOne = w.putBack(a.err)
	default:
		w.fail(a.ops, a.err)
	}
}

// answerProven answers operations that change nothing, except those that an old state may have
// refused: for these the state is read again.
func (w *Writer[S, O, A]) answerProven(a *attempt[S, O, A]) {
	var ops []*Op[O, A]
	var answers []Answer[A]
	for i, o := range a.ops {
		if answer := a.judged.Answers[i]; o.Proven || !answer.Refused {
			ops, answers = append(ops, o), append(answers, answer)
		}
	}
	if len(ops) < len(a.ops) {
		w.Forget()
	}
	w.answer(ops, answers)
}

// resolve finds out whether the lost entry was committed: see Resolve.
func (w *Writer[S, O, A]) resolve(ctx context.Context) {
	lost, count := w.lost, w.counted()
	s, kv, err := w.rules.Read(ctx)
	if err != nil {
		w.unresolved(ctx, err)
		return
	}
	w.failures = 0
	w.keep(s, kv.Version, count)
	switch {
	case bytes.Equal(kv.Value, lost.value):
		w.lost = nil
		w.answer(w.taken, lost.answers)
		return
	case lost.fence != nil && bytes.Equal(kv.Value, lost.fence): // it was put after all, and the entry was refused
		w.lost = nil
		return
	}
	if kv.Version == lost.from {
		next := kv.Version.Next()
		if fence := w.judge(s, next, nil); fence.Changes {
			lost.fence = fence.Value
			if _, err := w.rules.Log.Append(ctx, w.entry(fence, next)); err != nil {
				w.Forget()
				w.unresolved(ctx, err)
				return
			}
			w.keep(fence.Next, next, count)
			w.lost = nil
			return
		}
	}
	w.lost = nil
	for _, o := range w.taken {
		o.MaybeDone = true // it was committed before another process changed the state, or not at all
	}
}

// unresolved handles an error on the way to the outcome of the lost entry. If the error is for
// good, or the work ends, the outcome stays unknown.
func (w *Writer[S, O, A]) unresolved(ctx context.Context, err error) {
	refused := IsRefusal(err) && !errors.Is(err, eventlog.ErrStale)
	if !refused && ctx.Err() == nil && !errors.Is(err, eventlog.ErrClosed) {
		w.failures++
		eventlog.Pause(ctx, w.failures)
		return
	}
	w.lost = nil
	for _, o := range w.taken {
		o.MaybeDone = true
	}
	w.fail(w.taken, err)
}

func (w *Writer[S, O, A]) isHeld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

func (w *Writer[S, O, A]) setHeld(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
}

// putBack moves the operations that are taken back to the queue, before those that are queued, and
// returns how many. Those whose callers have given up get the error instead.
func (w *Writer[S, O, A]) putBack(err error) int {
	w.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(w.taken), func(o *Op[O, A]) bool { return !o.left })
	back := slices.DeleteFunc(slices.Clone(w.taken), func(o *Op[O, A]) bool { return o.left })
	w.queued = append(slices.Clone(back), w.queued...)
	w.taken, w.awaited = left, 0
	w.mu.Unlock()
	w.fail(left, err)
	return len(back)
}

// answerPrepared ends the operations that Prepare has answered.
func (w *Writer[S, O, A]) answerPrepared() {
	var ops []*Op[O, A]
	var answers []Answer[A]
	for _, o := range w.taken {
		if o.answered {
			ops, answers = append(ops, o), append(answers, o.answer)
		}
	}
	w.answer(ops, answers)
}

// answer ends operations that are taken.
func (w *Writer[S, O, A]) answer(ops []*Op[O, A], answers []Answer[A]) {
	if len(ops) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range ops {
		o.answer, o.answered = answers[i], true
		close(o.done)
		switch {
		case !o.left:
			w.awaited--
		case o.answer.Err == nil && w.rules.Missed != nil:
			w.rules.Start(func(context.Context) { w.rules.Missed(o.Do, o.answer.Value) })
		}
	}
	w.taken = slices.DeleteFunc(w.taken, func(o *Op[O, A]) bool { return o.answered })
}

// fail answers operations that are taken; all get the error err, in place of the answers that Judge
// gave them: only a commit proves that the state by which they were judged was not old.
func (w *Writer[S, O, A]) fail(ops []*Op[O, A], err error) {
	answers := make([]Answer[A], len(ops))
	for i, o := range ops {
		answers[i].Err = err
		if o.MaybeDone && !errors.Is(err, eventlog.ErrUnsure) {
			answers[i].Err = w.named(fmt.Errorf("%w: an earlier attempt may have succeeded, and the last one failed: %w", eventlog.ErrUnsure, err))
		}
	}
	w.answer(ops, answers)
}

// failQueued answers all queued operations with an error.
func (w *Writer[S, O, A]) failQueued(err error) {
	w.mu.Lock()
	ops := w.queued
	w.queued = nil
	w.awaited += len(ops)
	w.mu.Unlock()
	w.fail(ops, err)
}
