package weir

import (
	"context"

	"github.com/weir-log/weir/use/stream"
)

// Errors of streams.
var (
	// ErrConflict: a stream was not at the version that an append expected. It comes as a *ConflictError, which tells where it is.
	ErrConflict = stream.ErrConflict
	// ErrUnknownCategory: there is no category of that name. EnsureCategory makes one.
	ErrUnknownCategory = stream.ErrUnknownCategory
	// ErrCategoryExists: a topic, or a category, has the name already.
	ErrCategoryExists = stream.ErrCategoryExists
	// ErrBoundary: an event with one of the tags of a decision was appended since they were read. Read them again, and decide anew.
	ErrBoundary = stream.ErrBoundary
	// ErrArchived: the stream is archived: it can be read, and not appended to until Category.Unarchive.
	ErrArchived = stream.ErrArchived
	// ErrForgotten: events that an aggregate's state rests on were forgotten, and no snapshot stands for them.
	ErrForgotten = stream.ErrForgotten
	// ErrStreamChanged: events were deleted from the stream while it was read. Read it again.
	ErrStreamChanged = stream.ErrChanged
	// ErrEventIDReused: an event with the same id and other content is in the stream.
	ErrEventIDReused = stream.ErrIDReused
)

// What streams are made of. docs/streams.md tells what they promise.
type (
	// Category is a topic of streams: append to them and read them by its methods. All of them may be called at once.
	Category = stream.Category
	// CategorySpec describes a category to be made.
	CategorySpec = stream.Spec
	// StreamEvent is an event of a stream.
	StreamEvent = stream.Event
	// NewStreamEvent is an event to append to a stream.
	NewStreamEvent = stream.NewEvent
	// ExpectedVersion is the version at which a stream must be for an append: 0 or more, or AnyVersion, NoStream, StreamExists.
	ExpectedVersion = stream.Expected
	// StreamAppended tells where events were appended.
	StreamAppended = stream.Appended
	// StreamPart is what AppendAll appends to one stream.
	StreamPart = stream.Part
	// StreamRange is a part of a stream to read.
	StreamRange = stream.Range
	// StreamRetention says which events of a stream are kept.
	StreamRetention = stream.Retention
	// StreamState is what is known of a stream without its events.
	StreamState = stream.State
	// NamedStream is a stream's name and state.
	NamedStream = stream.Named
	// TagBoundary is what was known of tags when their events were read (Category.Tagged, Category.AppendWithin).
	TagBoundary = stream.Boundary
	// StreamSnapshot is the state that the events of a stream below a version add up to.
	StreamSnapshot = stream.Snapshot
	// ConflictError reports an append that found the stream at another version than was expected.
	ConflictError = stream.ConflictError
	// Aggregate decides by the state that a stream's events add up to: load, decide, append, and again after a conflict.
	Aggregate[S any] = stream.Aggregate[S]
	// Decided is what became of a decision.
	Decided[S any] = stream.Done[S]
)

// Names of common metadata of events, as CloudEvents and most event stores have them. weir gives them no meaning.
const (
	EventContentType   = stream.ContentType
	EventCausationID   = stream.CausationID
	EventCorrelationID = stream.CorrelationID
)

// Expectations of an append, beside a version.
const (
	AnyVersion   = stream.Any
	NoStream     = stream.NoStream
	StreamExists = stream.Exists
)

// CreateCategory makes a category, durably: a topic for streams. ErrCategoryExists when a topic has the name, *InvalidError when
// something of it is not allowed.
func (l *Log) CreateCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "create category %q", spec.Name)
	}
	return l.streams.CreateCategory(ctx, spec)
}

// EnsureCategory makes a category if there is no topic of that name; one that is there stays as it is. So every process may call it
// when it starts.
func (l *Log) EnsureCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "ensure category %q", spec.Name)
	}
	return l.streams.EnsureCategory(ctx, spec)
}

// Category returns a category by name; ErrUnknownCategory.
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

// AppendAll appends to several streams, of one category or of several, each of them once: to all of them, or to none. A *ConflictError
// names the first stream that was not as expected.
func (l *Log) AppendAll(ctx context.Context, parts ...StreamPart) ([]StreamAppended, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "append to %d streams", len(parts))
	}
	return l.streams.AppendAll(ctx, parts...)
}
