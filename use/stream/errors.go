package stream

import (
	"errors"
	"fmt"
)

var (
	// ErrConflict: the stream was not at the expected version. It always comes as a *ConflictError.
	ErrConflict = errors.New("conflict")
	// ErrUnknownCategory: there is no category of that name. It may be the name of a topic that is
	// no category.
	ErrUnknownCategory = errors.New("unknown category")
	// ErrCategoryExists: a topic has the name already.
	ErrCategoryExists = errors.New("category exists")
	// ErrArchived: the stream is archived: it can be read, and not appended to until Unarchive.
	ErrArchived = errors.New("the stream is archived")
	// ErrForgotten: events that an aggregate's state rests on were forgotten (Category.Forget,
	// Retention), and there is no usable snapshot from after them.
	ErrForgotten = errors.New("events were forgotten, and no snapshot replaces them")
	// ErrBoundary: an event with one of a Boundary's tags was appended since the boundary was read.
	// Read the tags again, and decide again.
	ErrBoundary = errors.New("an event with one of the tags was appended since they were read")
	// ErrUnknownProjection: there is no projection of that name.
	ErrUnknownProjection = errors.New("unknown projection")
	// ErrChanged: the stream was deleted, or some of its events were, while it was read. The events
	// that were returned are right; read the stream again.
	ErrChanged = errors.New("changed while it was read")
	// ErrIDReused: an event with the same id and other content is in the stream.
	ErrIDReused = errors.New("event id reused for other content")
)

// ConflictError reports an append that found the stream at another version than was expected.
// Nothing was appended.
type ConflictError struct {
	Category, Stream string
	Expected         Expected
	Actual           int64 // the version that the stream was at
	Exists           bool  // it has events, and is not deleted
}

func (e *ConflictError) Error() string {
	state := "which does not exist"
	if e.Exists {
		state = "which exists"
	}
	return fmt.Sprintf("%v: stream %q of category %q, %s, is at version %d, but %s was expected; read the stream and decide again",
		ErrConflict, shorten(e.Stream), e.Category, state, e.Actual, e.Expected)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// shorten cuts a text for an error message.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// plural is a number of things, in words.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
