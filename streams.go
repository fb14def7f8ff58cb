package weir

import (
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

// Errors of streams.
var (
	// ErrConflict: a stream was not at the version that an append expected. It comes as a
	// *ConflictError, which has the stream's version.
	ErrConflict = stream.ErrConflict
	// ErrUnknownCategory: there is no category of that name. EnsureCategory makes one.
	ErrUnknownCategory = stream.ErrUnknownCategory
	// ErrCategoryExists: a topic or a category of this name exists already.
	ErrCategoryExists = stream.ErrCategoryExists
	// ErrBoundary: an event with one of the tags of a decision was appended since the tags were
	// read. Read the tags again, and decide again.
	ErrBoundary = stream.ErrBoundary
	// ErrArchived: the stream is archived: it can be read, but not appended to until
	// Category.Unarchive.
	ErrArchived = stream.ErrArchived
	// ErrStreamHeld: a transaction that appends with SQL (weir.append) held the stream until the
	// context ended. Nothing was appended. It matches ErrUnavailable, too.
	ErrStreamHeld = eventlog.ErrHeld
	// ErrForgotten: events that an aggregate needs for its state were forgotten, and no snapshot
	// includes them.
	ErrForgotten = stream.ErrForgotten
	// ErrStreamChanged: events were deleted from the stream while it was read. Read it again.
	ErrStreamChanged = stream.ErrChanged
	// ErrEventIDReused: the stream has an event with the same id and different content.
	ErrEventIDReused = stream.ErrIDReused
)

// Types of streams. docs/streams.md says what streams promise.
type (
	// Category is a topic of streams: its methods append to them and read them. All methods may be
	// called concurrently.
	Category = stream.Category
	// CategorySpec describes a category to create.
	CategorySpec = stream.Spec
	// StreamEvent is an event of a stream.
	StreamEvent = stream.Event
	// NewStreamEvent is an event to append to a stream.
	NewStreamEvent = stream.NewEvent
	// ExpectedVersion is the version at which a stream must be for an append: 0 or more, or
	// AnyVersion, NoStream, StreamExists.
	ExpectedVersion = stream.Expected
	// StreamAppended says where events were appended.
	StreamAppended = stream.Appended
	// StreamPart is what AppendAll appends to one stream.
	StreamPart = stream.Part
	// StreamRange is a part of a stream to read.
	StreamRange = stream.Range
	// StreamRetention says which events of a stream are kept.
	StreamRetention = stream.Retention
	// StreamState describes a stream: what weir knows without reading its events.
	StreamState = stream.State
	// NamedStream is a stream's name and state.
	NamedStream = stream.Named
	// TagBoundary is the state of tags when their events were read (Category.Tagged);
	// Category.AppendWithin checks it. Category.Boundary parses its String.
	TagBoundary = stream.Boundary
	// StreamSnapshot is the state that the events of a stream below a version produce.
	StreamSnapshot = stream.Snapshot
	// ConflictError reports an append that found the stream at another version than was expected.
	ConflictError = stream.ConflictError
	// Aggregate makes a decision from the state that a stream's events produce: load, decide,
	// append, and again after a conflict.
	Aggregate[S any] = stream.Aggregate[S]
	// Decided is the result of a decision.
	Decided[S any] = stream.Done[S]
)

// Names of common metadata of events, as in CloudEvents and most event stores. weir itself does not
// use them.
const (
	EventContentType   = stream.ContentType
	EventCausationID   = stream.CausationID
	EventCorrelationID = stream.CorrelationID
)

// What an append may expect instead of a version.
const (
	AnyVersion   = stream.Any
	NoStream     = stream.NoStream
	StreamExists = stream.Exists
)

// CreateCategory creates a category, durably: a topic for streams. ErrCategoryExists if a topic has
// the name, *InvalidError if a value is not allowed.
func (l *Log) CreateCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "create category %q", spec.Name)
	}
	return l.streams.CreateCategory(ctx, spec)
}

// EnsureCategory creates the category if there is no topic of that name; an existing category stays
// as it is. So every process may call it when it starts.
func (l *Log) EnsureCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "ensure category %q", spec.Name)
	}
	return l.streams.EnsureCategory(ctx, spec)
}

// Category returns a category by name; ErrUnknownCategory if there is none.
func (l *Log) Category(ctx context.Context, name string) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "category %q", name)
	}
	return l.streams.Category(ctx, name)
}

// Categories lists the names of all categories.
func (l *Log) Categories(ctx context.Context) ([]string, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "list categories")
	}
	return l.streams.Categories(ctx)
}

// AppendAll appends to several streams, of one category or of several: to all of them, or to none.
// Each stream may be named once. A *ConflictError names the first stream that was not at its
// expected version.
func (l *Log) AppendAll(ctx context.Context, parts ...StreamPart) ([]StreamAppended, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "append to %d streams", len(parts))
	}
	return l.streams.AppendAll(ctx, parts...)
}
