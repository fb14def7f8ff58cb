package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
)

// Part is what AppendAll appends to one stream.
type Part struct {
	Category *Category
	Stream   string
	Expected Expected
	Events   []NewEvent
}

// wrap says which stream an error is about.
func (p Part) wrap(err error) error {
	return fmt.Errorf("stream %q of category %q: %w", shorten(p.Stream), p.Category.Name(), err)
}

// partsMax bounds the streams of one AppendAll, severalMax the bytes of its events.
const (
	partsMax   = 100
	severalMax = 16 << 20
)

// If another append was first, an append to several streams pauses for a random time: up to
// lostPause at first, up to lostPauseMax later.
const (
	lostPause    = 2 * time.Millisecond
	lostPauseMax = 250 * time.Millisecond
)

// AppendAll appends to several streams, each of them once, at the versions that are expected: to
// all of them, or to none. The streams may be of several categories. It is Append otherwise; a
// *ConflictError names the first stream that was not as expected. It costs a store call for all
// streams, one for all tags, and one more. Together the events have at most 10,000 tags, 1,000
// different tags and 1,000 different subjects (*eventlog.InvalidError).
func (s *Streams) AppendAll(ctx context.Context, parts ...Part) ([]Appended, error) {
	done, err := s.appendAll(ctx, parts)
	countAll(parts, done, err)
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", plural(len(parts), "stream"), err)
	}
	return done, nil
}

func (s *Streams) appendAll(ctx context.Context, parts []Part) ([]Appended, error) {
	a, err := s.Several(parts...)
	if err != nil {
		return nil, err
	}
	held := false // the last try was refused because a transaction holds a stream
	for pause := lostPause; ; pause = min(2*pause, lostPauseMax) {
		var e eventlog.Entry
		done, err := a.AddTo(ctx, &e)
		if err == nil && done[0].Duplicate {
			return done, nil
		}
		if err == nil {
			_, err = s.log.Append(ctx, e)
		}
		switch {
		case err == nil:
			return done, nil
		case errors.Is(err, eventlog.ErrNoPartition):
			return nil, fmt.Errorf("%w: one of the categories was deleted", ErrUnknownCategory)
		case held && ctx.Err() != nil && errors.Is(err, eventlog.ErrUnavailable):
			return nil, heldError(context.Cause(ctx))
		case !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrHeld):
			return nil, err
		}
		held = errors.Is(err, eventlog.ErrHeld)
		select {
		case <-time.After(chance.N(pause)): // random, because two equally fast appends could refuse each other for long
		case <-ctx.Done():
			if held {
				return nil, heldError(context.Cause(ctx))
			}
			return nil, fmt.Errorf("%w: gave up because other appends came first (%w)", eventlog.ErrOverloaded, context.Cause(ctx))
		}
	}
}

// Several is an append to several streams that its caller commits, perhaps with changes of its own.
// It is for one goroutine.
type Several struct {
	parts []Part
	ops   []*op
	tried bool // AddTo was called before
}

// Several prepares an append to several streams.
func (s *Streams) Several(parts ...Part) (*Several, error) {
	ops, err := prepareAll(parts)
	if err != nil {
		return nil, err
	}
	return &Several{parts: parts, ops: ops}, nil
}

// AddTo adds the append to an entry, as the streams are now: a store call for all streams, and one
// for all tags. If the store refuses the entry with eventlog.ErrStale or eventlog.ErrHeld, or if
// AddTo returns eventlog.ErrHeld, call AddTo again with another entry. If the same events were
// appended before, it adds nothing, and all results are Duplicate. *ConflictError: a stream is not
// as expected.
func (a *Several) AddTo(ctx context.Context, e *eventlog.Entry) ([]Appended, error) {
	if a.tried {
		if done, err := foundAll(ctx, a.parts, a.ops); done != nil || err != nil {
			return done, err
		}
	}
	if err := a.protect(ctx); err != nil {
		return nil, err
	}
	a.tried = true
	heads, err := readHeads(ctx, a.parts)
	if err != nil {
		return nil, err
	}
	if conflict := conflictIn(a.parts, a.ops, heads); conflict != nil {
		if done, err := foundAll(ctx, a.parts, a.ops); done != nil || err != nil {
			return done, err
		}
		if err := a.confirm(ctx, heads); errors.Is(err, eventlog.ErrStale) {
			return a.AddTo(ctx, e)
		} else if err != nil {
			return nil, err
		}
		return nil, conflict
	}
	tags := make(tagHeads)
	for i, p := range a.parts {
		p.Category.tagsOf(tags, a.ops[i])
	}
	if err := a.parts[0].Category.owner.readTags(ctx, tags); err != nil {
		return nil, err
	}
	results := make([]Appended, len(a.parts))
	for i, p := range a.parts {
		topic, err := p.Category.knownTopic()
		if err != nil {
			return nil, err
		}
		after, done, err := p.Category.change(e, topic, p.Stream, heads[i], tags, a.ops[i:i+1])
		if err != nil {
			return nil, err
		}
		p.Category.changeHead(e, p.Stream, heads[i], after)
		results[i] = done[0]
	}
	tags.write(e)
	return results, nil
}

// protect encrypts the events of all parts that are about subjects, whose keys it reads together.
func (a *Several) protect(ctx context.Context) error {
	var names []string
	for i, p := range a.parts {
		names = append(names, p.Category.subjects(a.ops[i])...)
	}
	slices.Sort(names)
	keys, err := a.parts[0].Category.owner.keysFor(ctx, slices.Compact(names), a.tried)
	if err != nil {
		return err
	}
	for i, p := range a.parts {
		if err := p.Category.protectWith(keys, a.ops[i]); err != nil {
			return err
		}
	}
	return nil
}

// confirm is called before a conflict is reported, see Streams.confirm.
func (a *Several) confirm(ctx context.Context, heads []head) error {
	var checks []eventlog.Check
	for i, o := range a.ops {
		if o.mayYetFit(heads[i]) {
			checks = append(checks, eventlog.Check{Key: a.parts[i].Category.key(headPrefix, o.stream), Version: heads[i].version})
		}
	}
	if len(checks) == 0 {
		return nil
	}
	return a.parts[0].Category.owner.confirm(ctx, checks...)
}

// prepareAll checks the parts and makes their records.
func prepareAll(parts []Part) (ops []*op, err error) {
	if len(parts) == 0 || len(parts) > partsMax {
		return nil, &eventlog.InvalidError{What: "number of streams", Value: strconv.Itoa(len(parts)), Why: fmt.Sprintf("one call appends to 1 to %d", partsMax)}
	}
	size := 0
	seen := make(map[string]bool, len(parts))
	for _, p := range parts {
		o, err := p.Category.prepare(p.Stream, p.Expected, p.Events)
		if err != nil {
			return nil, p.wrap(err)
		}
		key := p.Category.key(headPrefix, p.Stream)
		if seen[key] {
			return nil, &eventlog.InvalidError{What: "stream", Value: shorten(p.Stream), Why: "it occurs twice: put all its events into one part"}
		}
		seen[key] = true
		size += o.size
		ops = append(ops, o)
	}
	if err := checkTogether(parts, ops); err != nil {
		return nil, err
	}
	if size > severalMax {
		return nil, fmt.Errorf("%w: the events take %d bytes; one call appends at most %d", eventlog.ErrTooLarge, size, severalMax)
	}
	return ops, nil
}

// readHeads reads the heads of all streams with one read.
func readHeads(ctx context.Context, parts []Part) ([]head, error) {
	keys := make([]string, len(parts))
	for i, p := range parts {
		if err := checkName(p.Stream); err != nil {
			return nil, err
		}
		if _, err := p.Category.knownTopic(); err != nil {
			return nil, err
		}
		keys[i] = p.Category.key(headPrefix, p.Stream)
	}
	heads, n := make([]head, len(parts)), 0
	return heads, parts[0].Category.owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) (err error) {
		if kv.Version > 0 {
			heads[n], err = headIn(kv)
		}
		n++
		return err
	})
}

func conflictIn(parts []Part, ops []*op, heads []head) error {
	for i, o := range ops {
		if !o.allowedAt(heads[i]) {
			err := parts[i].Category.conflict(o, heads[i])
			if !errors.Is(err, ErrConflict) { // a conflict names the stream by itself
				err = parts[i].wrap(err)
			}
			return err
		}
	}
	return nil
}

// Reaction returns a function that adds the append of the parts to an entry of somebody else, each
// time it is called (Several.AddTo). An error of Reaction: the parts can never be appended.
func (s *Streams) Reaction(parts ...Part) (func(ctx context.Context, e *eventlog.Entry) error, error) {
	several, err := s.Several(parts...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, e *eventlog.Entry) error {
		_, err := several.AddTo(ctx, e)
		return err
	}, nil
}
