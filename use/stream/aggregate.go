package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Aggregate makes decisions by the state that a stream's events add up to. Its functions must have
// no side effects: they may be called more than once. Do not change an Aggregate that is in use;
// its methods may be called concurrently.
type Aggregate[S any] struct {
	Category *Category
	// Begin returns the state before the first event. Default: the zero value.
	Begin func() S
	// Apply returns the state after an event.
	Apply func(S, Event) (S, error)
	// Upcast turns an event of a type that is no longer written into events of today's types; it
	// returns other events as they are. Default: no event is changed.
	Upcast func(Event) []Event
	// Encode and Decode are for snapshots: with both, a snapshot is saved after every SnapshotEvery
	// events, and only the events after it are read. A snapshot that Decode refuses is not used, so
	// that the form of a state can change. Default: no snapshots.
	Encode func(S) ([]byte, error)
	Decode func([]byte) (S, error)
	// SnapshotEvery: default 100.
	SnapshotEvery int64
	// Attempts is how often Do decides, at most, while others append to the stream, and how often a
	// stream is read while events of it are deleted. Default 10, also for a number below 1.
	Attempts int
}

// Load reads a stream's state, and the stream's version in that state. A stream that does not exist
// has the state before the first event, and the version at which it would begin. It costs one store
// call, one more with snapshots, and one for each MiB of events that it reads.
func (a *Aggregate[S]) Load(ctx context.Context, stream string) (state S, version int64, err error) {
	state, version, err = a.loadAgain(ctx, stream)
	if err != nil {
		err = fmt.Errorf("load stream %q of category %q: %w", shorten(stream), a.Category.Name(), err)
	}
	return state, version, err
}

// loadAgain loads, and does so again if events were deleted meanwhile, by Retention or Forget.
func (a *Aggregate[S]) loadAgain(ctx context.Context, stream string) (state S, version int64, err error) {
	for range a.attempts() {
		if state, version, err = a.load(ctx, stream); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return state, version, err
}

func (a *Aggregate[S]) attempts() int {
	if a.Attempts < 1 {
		return 10
	}
	return a.Attempts
}

func (a *Aggregate[S]) load(ctx context.Context, stream string) (state S, version int64, err error) {
	state = a.begin()
	h, err := a.Category.readHead(ctx, stream)
	if err != nil || !h.exists() {
		return state, h.Next, err
	}
	version = h.First
	whole := h.First == h.Born
	if a.Decode != nil {
		saved, is, err := a.Category.snapshotOf(ctx, stream, h, h.Next)
		if err != nil {
			return state, version, err
		}
		if is {
			if decoded, err := a.Decode(saved.Data); err == nil {
				state, version, whole = decoded, saved.Version, true
			}
		}
	}
	if !whole {
		return state, version, fmt.Errorf("%w: the events below version %d", ErrForgotten, h.First)
	}
	var failed error
	err = a.Category.visitFrom(ctx, stream, h, Range{From: version}, func(e Event) bool {
		state, failed = a.apply(state, e)
		return failed == nil
	})
	return state, h.Next, cmp.Or(err, failed)
}

func (a *Aggregate[S]) begin() (state S) {
	if a.Begin != nil {
		state = a.Begin()
	}
	return state
}

func (a *Aggregate[S]) apply(state S, e Event) (S, error) {
	events := []Event{e}
	if a.Upcast != nil {
		events = a.Upcast(e)
	}
	for _, each := range events {
		var err error
		if state, err = a.Apply(state, each); err != nil {
			return state, fmt.Errorf("apply the event with version %d, %s: %w", e.Version, shorten(e.Type), err)
		}
	}
	return state, nil
}

// Done is what became of a decision.
type Done[S any] struct {
	State    S     // the state after the events
	Version  int64 // the stream's version then
	Appended int   // how many events were appended
}

// Do loads a stream's state, asks decide which events follow from it, and appends them, if nothing
// else was appended meanwhile; otherwise it loads and decides again. If decide returns an error,
// nothing is appended; no events are no error.
//
// After a lost answer of the store it appends the same events again, until the outcome is known.
// eventlog.ErrUnsure comes when ctx ends before that, or when appending again fails for good, as
// after the log was closed. A *ConflictError comes when other appends came first, Attempts times.
func (a *Aggregate[S]) Do(ctx context.Context, stream string, decide func(state S) ([]NewEvent, error)) (Done[S], error) {
	done, err := a.do(ctx, stream, decide)
	if err != nil {
		err = fmt.Errorf("decide on stream %q of category %q: %w", shorten(stream), a.Category.Name(), err)
	}
	return done, err
}

func (a *Aggregate[S]) do(ctx context.Context, stream string, decide func(state S) ([]NewEvent, error)) (Done[S], error) {
	var conflict *ConflictError
	for range a.attempts() {
		state, version, err := a.loadAgain(ctx, stream)
		if err != nil {
			return Done[S]{}, err
		}
		events, err := decide(state)
		if err != nil || len(events) == 0 {
			return Done[S]{State: state, Version: version}, err
		}
		events = withIDs(events)
		appended, err := a.append(ctx, stream, Expected(version), events)
		if errors.As(err, &conflict) {
			continue
		}
		if err != nil {
			return Done[S]{}, err
		}
		for i, e := range events {
			if state, err = a.apply(state, e.at(stream, version+int64(i))); err != nil {
				return Done[S]{}, fmt.Errorf("%d events were appended, but the state after them is not known: %w", len(events), err)
			}
		}
		a.saveSometimes(ctx, stream, version, appended.Version, state)
		return Done[S]{State: state, Version: appended.Version, Appended: len(events)}, nil
	}
	return Done[S]{}, conflict
}

// append appends until the outcome is known, ctx ends, or trying again does not help. After a lost
// answer only ErrConflict and ErrArchived prove that nothing was appended: before Append returns
// one of them, it has looked for the events in the stream. After any other error the outcome of the
// earlier try is unknown (eventlog.ErrUnsure).
func (a *Aggregate[S]) append(ctx context.Context, stream string, at Expected, events []NewEvent) (Appended, error) {
	unsure := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		done, err := a.Category.Append(ctx, stream, at, events...)
		lost := errors.Is(err, eventlog.ErrUnsure)
		unsure = unsure || lost
		switch {
		case err == nil, !unsure, errors.Is(err, ErrConflict), errors.Is(err, ErrArchived):
			return done, err
		case lost, errors.Is(err, eventlog.ErrUnavailable):
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		if !lost {
			err = fmt.Errorf("%w: an earlier attempt may have succeeded (%w)", eventlog.ErrUnsure, err)
		}
		return Appended{}, err
	}
}

// withIDs gives events the ids by which a repetition is recognised.
func withIDs(events []NewEvent) []NewEvent {
	events = slices.Clone(events)
	for i := range events {
		events[i].ID = cmp.Or(events[i].ID, rand.Text())
		if events[i].Time.IsZero() {
			events[i].Time = time.Now()
		}
	}
	return events
}

// at returns the event as it is read at a version.
func (e NewEvent) at(stream string, version int64) Event {
	return Event{Stream: stream, Version: version, ID: e.ID, Type: e.Type, Data: e.Data, Subject: e.Subject, Tags: e.Tags, Metadata: e.Metadata, Time: time.UnixMilli(e.Time.UnixMilli())}
}

// saveSometimes saves a snapshot if the version has passed a multiple of SnapshotEvery. If saving
// fails, later loads only take longer.
func (a *Aggregate[S]) saveSometimes(ctx context.Context, stream string, before, after int64, state S) {
	every := cmp.Or(a.SnapshotEvery, 100)
	if a.Encode == nil || a.Decode == nil || before/every == after/every {
		return
	}
	data, err := a.Encode(state)
	if err == nil {
		err = a.Category.SaveSnapshot(ctx, stream, Snapshot{Version: after, Data: data})
	}
	if err != nil {
		a.Category.owner.cfg.Logger.Warn("a snapshot was not saved; the next load reads more events instead", "category", a.Category.Name(), "stream", stream, "version", after, "err", err)
	}
}

// Decide calls decide with the state that the given events add up to, and returns its events. It
// uses no store: it is for tests of decisions.
//
//	given these events, when this is decided, then those events follow
func (a *Aggregate[S]) Decide(given []NewEvent, decide func(state S) ([]NewEvent, error)) ([]NewEvent, error) {
	state := a.begin()
	for i, e := range given {
		var err error
		if state, err = a.apply(state, e.at("", int64(i))); err != nil {
			return nil, err
		}
	}
	return decide(state)
}
