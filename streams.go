package weir

import (
	"context"
	"errors"
	"iter"
	"time"

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

// Category is a topic of streams: its methods append to them and read them. All methods may be
// called concurrently.
type Category struct{ below *stream.Category }

// CategorySpec describes a category to create.
type CategorySpec struct {
	Name       string
	Partitions int               // default 4
	Settings   map[string]string // the settings of its topic; default: retention.ms is -1
	Retention  StreamRetention   // which events of its streams are kept; default: all
}

func (s CategorySpec) below() stream.Spec {
	return stream.Spec{Name: s.Name, Partitions: s.Partitions, Settings: s.Settings, Retention: stream.Retention(s.Retention)}
}

// StreamEvent is an event of a stream.
type StreamEvent struct {
	Stream   string
	Version  int64 // the event's version in the stream; the first event has 0
	ID       string
	Type     string
	Data     []byte // nil if it is Erased
	Subject  string
	Erased   bool // its subject was forgotten
	Tags     []string
	Metadata []Header
	Time     time.Time
}

func streamEventOf(e *stream.Event) StreamEvent {
	return StreamEvent{
		Stream: e.Stream, Version: e.Version, ID: e.ID, Type: e.Type, Data: e.Data, Subject: e.Subject, Erased: e.Erased, Tags: e.Tags,
		Metadata: headersOut(e.Metadata), Time: e.Time,
	}
}

// NewStreamEvent is an event to append to a stream. Its bytes must not be changed after it was
// passed to a function.
type NewStreamEvent struct {
	// ID makes the append repeatable: the same events appended again, at the same expected version,
	// are found to be there. At most 128 bytes. "": a random one; then the append cannot be
	// repeated.
	ID   string
	Type string // what happened; 1 to 255 bytes
	Data []byte
	// Subject is whom the event is about, so that Data can be forgotten: it is encrypted with a key
	// of the subject's, which ForgetSubject destroys. Readers of the category's topic get Data
	// encrypted. At most 255 bytes. Subject itself is not encrypted: use an id that reveals
	// nothing. "": nobody, and Data is not encrypted.
	Subject string
	// Tags are for decisions that rest on events of several streams (Category.AppendWithin): at
	// most 16, each of at most 255 bytes.
	Tags     []string
	Metadata []Header  // names beginning with "weir." are refused
	Time     time.Time // default: now. The category's records have it, too, unless its message.timestamp.type is LogAppendTime
}

func newEvents(events []NewStreamEvent) []stream.NewEvent {
	below := make([]stream.NewEvent, len(events))
	for i, e := range events {
		below[i] = stream.NewEvent{ID: e.ID, Type: e.Type, Data: e.Data, Subject: e.Subject, Tags: e.Tags, Metadata: headersIn(e.Metadata), Time: e.Time}
	}
	return below
}

// ExpectedVersion is the version at which a stream must be for an append: 0 or more, or AnyVersion,
// NoStream, StreamExists. A stream at version n has had n events, so n is also the version that the
// first new event gets.
type ExpectedVersion int64

func (e ExpectedVersion) String() string { return stream.Expected(e).String() }

// StreamAppended says where events were appended.
type StreamAppended struct {
	First     int64 // version of the first of them
	Version   int64 // the stream's version after them
	Duplicate bool  // events with these ids were there already
}

// StreamPart is what AppendAll appends to one stream.
type StreamPart struct {
	Category *Category
	Stream   string
	Expected ExpectedVersion
	Events   []NewStreamEvent
}

func partsOf(parts []StreamPart) []stream.Part {
	below := make([]stream.Part, len(parts))
	for i, p := range parts {
		below[i] = stream.Part{Stream: p.Stream, Expected: stream.Expected(p.Expected), Events: newEvents(p.Events)}
		if p.Category != nil {
			below[i].Category = p.Category.below
		}
	}
	return below
}

// StreamRange is a part of a stream to read. The zero value is all of it.
type StreamRange struct {
	From, To int64     // versions from From to below To; To 0: to the end
	Until    time.Time // only events whose time is not after it; zero: any
	Types    []string  // only events of these types; none: all
	Backward bool      // the newest first
}

// StreamRetention says which events of a stream are kept. Those after the newest snapshot are kept
// in any case. The zero value keeps all. It is applied about every ten minutes; then the other
// events are removed as by Category.Forget. The records of the category's topic are kept as its own
// retention.ms says.
type StreamRetention struct {
	Events int64         `json:"events,omitempty"` // how many events are kept at most; 0: any number
	Age    time.Duration `json:"age,omitempty"`    // how old kept events may be, by their times; 0: any age
}

// StreamState describes a stream: what weir knows without reading its events.
type StreamState struct {
	Version int64 // how many events it has had; the version of the next one
	First   int64 // the version of the first event that can be read
	Exists  bool  // it was begun, and is not deleted
	// Archived: it is read as before, and cannot be appended to.
	Archived bool
	// Retention is of this stream alone (SetStreamRetention); nil: that of its category.
	Retention *StreamRetention
}

func stateOf(s stream.State) StreamState {
	return StreamState{Version: s.Version, First: s.First, Exists: s.Exists, Archived: s.Archived, Retention: (*StreamRetention)(s.Retention)}
}

// NamedStream is a stream's name and state.
type NamedStream struct {
	Stream string
	StreamState
}

// TagBoundary is the state of tags when their events were read (Category.Tagged);
// Category.AppendWithin checks it. Category.Boundary parses its String.
type TagBoundary struct{ below stream.Boundary }

// String is the boundary as text, for a client that decides elsewhere.
func (b TagBoundary) String() string { return b.below.String() }

// StreamSnapshot is the state that the events of a stream below a version produce.
type StreamSnapshot struct {
	Version int64
	Data    []byte
}

// ConflictError reports an append that found the stream at another version than was expected.
// Nothing was appended.
type ConflictError struct {
	Category, Stream string
	Expected         ExpectedVersion
	Actual           int64 // the version that the stream was at
	Exists           bool  // it has events, and is not deleted

	below *stream.ConflictError
}

func (e *ConflictError) Error() string { return e.below.Error() }

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// conflicted is an error of package stream in which errors.As finds the *ConflictError of this
// package.
type conflicted struct {
	error
	conflict *ConflictError
}

func (e *conflicted) Unwrap() []error { return []error{e.error, e.conflict} }

// conflict lets callers find a *ConflictError in an error of package stream.
func conflict(err error) error {
	var below *stream.ConflictError
	if !errors.As(err, &below) {
		return err
	}
	return &conflicted{err, &ConflictError{
		Category: below.Category, Stream: below.Stream, Expected: ExpectedVersion(below.Expected), Actual: below.Actual, Exists: below.Exists, below: below,
	}}
}

// Names of common metadata of events, as in CloudEvents and most event stores. weir itself does not
// use them.
const (
	EventContentType   = stream.ContentType
	EventCausationID   = stream.CausationID
	EventCorrelationID = stream.CorrelationID
)

// What an append may expect instead of a version.
const (
	AnyVersion   ExpectedVersion = -1 // any version, also if the stream does not exist
	NoStream     ExpectedVersion = -2 // it does not exist: it was never begun, or is deleted
	StreamExists ExpectedVersion = -3 // it exists
)

// CreateCategory creates a category, durably: a topic for streams. ErrCategoryExists if a topic has
// the name, *InvalidError if a value is not allowed. After ErrUnsure try again: the topic was
// created, and perhaps the category.
func (l *Log) CreateCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "create category %q", spec.Name)
	}
	return categoryOf(l.streams.CreateCategory(ctx, spec.below()))
}

// EnsureCategory creates the category if there is no topic of that name; an existing category stays
// as it is. So every process may call it when it starts.
func (l *Log) EnsureCategory(ctx context.Context, spec CategorySpec) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "ensure category %q", spec.Name)
	}
	return categoryOf(l.streams.EnsureCategory(ctx, spec.below()))
}

// Category returns a category by name; ErrUnknownCategory if there is none.
func (l *Log) Category(ctx context.Context, name string) (*Category, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "category %q", name)
	}
	return categoryOf(l.streams.Category(ctx, name))
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
	list, err := l.streams.AppendAll(ctx, partsOf(parts)...)
	if err != nil {
		return nil, conflict(err)
	}
	appended := make([]StreamAppended, len(list))
	for i, a := range list {
		appended[i] = StreamAppended(a)
	}
	return appended, nil
}

func categoryOf(below *stream.Category, err error) (*Category, error) {
	if err != nil {
		return nil, err
	}
	return &Category{below}, nil
}

// Name is the name of the category, and of its topic.
func (c *Category) Name() string {
	return c.below.Name()
}

// Append appends events durably if the stream is as expected: all of them, with consecutive
// versions, or none. A *ConflictError says at which version the stream was.
//
// After ErrUnsure the events may have been appended. Append them again with the same ids: events
// that are there already are recognised by their ids, and StreamAppended.Duplicate is set. This
// needs an id on every event. ErrEventIDReused: the events there have other content.
//
// If the parameter expected is a version, events are recognised for ever, unless they were deleted
// since. With AnyVersion, NoStream and StreamExists the whole list of ids is recognised, for 24
// hours: the same events one by one, or with another event, are new events. A list is recognised
// after a deletion, too: it is a Duplicate, although the stream does not exist.
//
// These errors also refuse the events for good: *InvalidError, ErrTooLarge
// (max.message.bytes of the category, for all events of the call), ErrUnknownCategory.
// ErrUnavailable: certainly not appended; trying again may work.
//
// While a transaction that has appended to the stream with SQL is open, Append waits. If ctx ends
// first, the error is ErrStreamHeld: nothing was appended.
func (c *Category) Append(ctx context.Context, stream string, expected ExpectedVersion, events ...NewStreamEvent) (StreamAppended, error) {
	return appended(c.below.Append(ctx, stream, expected.below(), newEvents(events)...))
}

// AppendWithin is Append if no event with one of the boundary's tags was appended since the
// boundary was read; otherwise it returns ErrBoundary. The events should have these tags, otherwise
// other decisions do not notice them. Appends of events with the same tag are serialised, in all
// streams: of appends at the same time the first one is not delayed, and each of the others takes
// at least three more store calls for each append before it.
func (c *Category) AppendWithin(ctx context.Context, b TagBoundary, stream string, expected ExpectedVersion, events ...NewStreamEvent) (StreamAppended, error) {
	return appended(c.below.AppendWithin(ctx, b.below, stream, expected.below(), newEvents(events)...))
}

// Events reads a part of a stream: one store call for its state, and one for each MiB of events,
// about. The cost does not grow with the stream, nor with the log. A stream that does not exist has
// no events.
//
// Events that are appended meanwhile are not read. It ends with the first error: ErrStreamChanged
// if events were deleted meanwhile.
func (c *Category) Events(ctx context.Context, name string, r StreamRange) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		for e, err := range c.below.Events(ctx, name, stream.Range(r)) {
			if !yield(streamEventOf(&e), err) {
				return
			}
		}
	}
}

// Tagged reads the events, in all streams of the category, that have at least one of the tags, and
// the boundary for a decision that rests on these events. Events with the same tag come in the
// order in which they were appended; of events that share no tag the one with the earlier time
// comes first. It costs a store call for all tags, one for each tag and each thousand of its
// events, one for each thousand streams, events and subjects, and one more for each 4 MiB. At most
// 10,000 events (*InvalidError) and 64 MiB (ErrTooLarge) are read.
func (c *Category) Tagged(ctx context.Context, tags ...string) ([]StreamEvent, TagBoundary, error) {
	list, b, err := c.below.Tagged(ctx, tags...)
	events := make([]StreamEvent, len(list))
	for i := range list {
		events[i] = streamEventOf(&list[i])
	}
	return events, TagBoundary{b}, err
}

// Boundary reads the text of a boundary that Tagged returned for this category.
// *InvalidError: it is not such a text.
func (c *Category) Boundary(text string) (TagBoundary, error) {
	b, err := c.below.Boundary(text)
	return TagBoundary{b}, err
}

// State reads where a stream ends and begins: one store call. A stream that never was is at version
// 0.
func (c *Category) State(ctx context.Context, stream string) (StreamState, error) {
	s, err := c.below.State(ctx, stream)
	return stateOf(s), err
}

// Place returns in which of the category's partitions a stream's events are, counted from 0. It
// returns false for a stream that never was. A partition that another process has just added is
// known here afterwards.
func (c *Category) Place(ctx context.Context, stream string) (partition int32, is bool, err error) {
	return c.below.Place(ctx, stream)
}

// List lists at most limit streams whose names begin with prefix and come after the name that is
// given as after ("": from the first one on), in the byte order of their escaped names
// (url.PathEscape): one store call. Deleted streams are listed, too: their versions go on.
func (c *Category) List(ctx context.Context, prefix, after string, limit int) ([]NamedStream, error) {
	list, err := c.below.List(ctx, prefix, after, limit)
	named := make([]NamedStream, len(list))
	for i, n := range list {
		named[i] = NamedStream{n.Stream, stateOf(n.State)}
	}
	return named, err
}

// Archive closes a stream that exists and is as expected: it can be read, and appends are refused
// with ErrArchived until Unarchive. A *ConflictError says that it is not as expected. Archiving an
// archived stream changes nothing. Its events may be forgotten, and it may be deleted.
func (c *Category) Archive(ctx context.Context, stream string, expected ExpectedVersion) error {
	return conflict(c.below.Archive(ctx, stream, expected.below()))
}

// Unarchive ends an Archive.
func (c *Category) Unarchive(ctx context.Context, stream string) error {
	return c.below.Unarchive(ctx, stream)
}

// Delete deletes a stream that is as expected: it exists no longer, and its events and snapshots
// cannot be read. A record with a null value, in the stream's partition, shows this to readers of
// the category. The category's topic keeps the events as long as its retention says.
//
// A deleted stream may be begun again, with NoStream or the version that it was at: its versions go
// on, so none is used twice. A stream that does not exist counts as deleted already
// (StreamAppended.Duplicate).
func (c *Category) Delete(ctx context.Context, stream string, expected ExpectedVersion) (StreamAppended, error) {
	return appended(c.below.Delete(ctx, stream, expected.below()))
}

// Forget removes a stream's events below a version, and its snapshots of earlier versions. The
// other events keep their versions. The category's topic keeps the events as long as its retention
// says.
func (c *Category) Forget(ctx context.Context, stream string, before int64) error {
	return c.below.Forget(ctx, stream, before)
}

// ForgetSubject destroys a subject's key. Once it has returned, nobody can read the data of the
// events that were appended about the subject, in this category and in its topic: the events are
// Erased. A subject that has no key is forgotten already. Events that are appended later get a new
// key.
//
// What it cannot reach: earlier backups of the store, and the replaced value of the key, which the
// store may keep until it reuses the space (on S3 for at most two days and twice the option grace,
// while a weir runs); metadata and the subject's own name, which are not encrypted; snapshots,
// which hold what the application put there. After ErrUnsure try again.
func (c *Category) ForgetSubject(ctx context.Context, subject string) error {
	return c.below.ForgetSubject(ctx, subject)
}

// Retention returns the retention of the category's streams that have none of their own: one store
// call.
func (c *Category) Retention(ctx context.Context) (StreamRetention, error) {
	r, err := c.below.Retention(ctx)
	return StreamRetention(r), err
}

// SetRetention sets the retention of the category's streams that have none of their own.
func (c *Category) SetRetention(ctx context.Context, r StreamRetention) error {
	return c.below.SetRetention(ctx, stream.Retention(r))
}

// SetStreamRetention gives a stream that exists a retention of its own; nil: that of its category.
func (c *Category) SetStreamRetention(ctx context.Context, name string, r *StreamRetention) error {
	return c.below.SetStreamRetention(ctx, name, (*stream.Retention)(r))
}

// SaveSnapshot keeps a snapshot. A stream may have snapshots at several versions; a second one at a
// version replaces the first. The stream must exist, and have been at the version
// (*InvalidError). A snapshot has at most max.message.bytes of the category
// (ErrTooLarge).
func (c *Category) SaveSnapshot(ctx context.Context, name string, s StreamSnapshot) error {
	return c.below.SaveSnapshot(ctx, name, stream.Snapshot(s))
}

// Snapshot loads the newest snapshot whose version is not above the version most; false: there is
// none. Two store calls.
func (c *Category) Snapshot(ctx context.Context, stream string, most int64) (StreamSnapshot, bool, error) {
	s, is, err := c.below.Snapshot(ctx, stream, most)
	return StreamSnapshot(s), is, err
}

func (e ExpectedVersion) below() stream.Expected { return stream.Expected(e) }

func appended(a stream.Appended, err error) (StreamAppended, error) {
	return StreamAppended(a), conflict(err)
}

// Aggregate makes decisions by the state that a stream's events add up to. Its functions must have
// no side effects: they may be called more than once. Do not change an Aggregate that is in use;
// its methods may be called concurrently.
type Aggregate[S any] struct {
	Category *Category
	// Begin returns the state before the first event. Default: the zero value.
	Begin func() S
	// Apply returns the state after an event.
	Apply func(S, StreamEvent) (S, error)
	// Upcast turns an event of a type that is no longer written into events of today's types; it
	// returns other events as they are. Default: no event is changed.
	Upcast func(StreamEvent) []StreamEvent
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

// below is the aggregate as package stream has it.
func (a *Aggregate[S]) below() *stream.Aggregate[S] {
	b := &stream.Aggregate[S]{Begin: a.Begin, Encode: a.Encode, Decode: a.Decode, SnapshotEvery: a.SnapshotEvery, Attempts: a.Attempts}
	if a.Category != nil { // Decide needs no category
		b.Category = a.Category.below
	}
	b.Apply = func(state S, e stream.Event) (S, error) { return a.Apply(state, streamEventOf(&e)) }
	if a.Upcast != nil {
		b.Upcast = func(e stream.Event) []stream.Event {
			today := a.Upcast(streamEventOf(&e))
			events := make([]stream.Event, len(today))
			for i := range today {
				events[i] = today[i].below()
			}
			return events
		}
	}
	return b
}

func (e *StreamEvent) below() stream.Event {
	return stream.Event{
		Stream: e.Stream, Version: e.Version, ID: e.ID, Type: e.Type, Data: e.Data, Subject: e.Subject, Erased: e.Erased, Tags: e.Tags,
		Metadata: headersIn(e.Metadata), Time: e.Time,
	}
}

// Load reads a stream's state, and the stream's version in that state. A stream that does not exist
// has the state before the first event, and the version at which it would begin. It costs one store
// call, one more with snapshots, and one for each MiB of events that it reads.
func (a *Aggregate[S]) Load(ctx context.Context, stream string) (state S, version int64, err error) {
	return a.below().Load(ctx, stream)
}

// Decided is what became of a decision.
type Decided[S any] struct {
	State    S     // the state after the events
	Version  int64 // the stream's version then
	Appended int   // how many events were appended
}

// Do loads a stream's state, asks decide which events follow from it, and appends them, if nothing
// else was appended meanwhile; otherwise it loads and decides again. If decide returns an error,
// nothing is appended; no events are no error.
//
// After a lost answer of the store it appends the same events again, until the outcome is known.
// ErrUnsure comes when ctx ends before that, or when appending again fails for good, as after
// Log.Close. A *ConflictError comes when other appends came first, Attempts times.
func (a *Aggregate[S]) Do(ctx context.Context, name string, decide func(state S) ([]NewStreamEvent, error)) (Decided[S], error) {
	done, err := a.below().Do(ctx, name, func(state S) ([]stream.NewEvent, error) {
		events, err := decide(state)
		return newEvents(events), err
	})
	return Decided[S](done), conflict(err)
}

// Decide calls decide with the state that the given events add up to, and returns its events. It
// uses no store: it is for tests of decisions.
//
//	given these events, when this is decided, then those events follow
func (a *Aggregate[S]) Decide(given []NewStreamEvent, decide func(state S) ([]NewStreamEvent, error)) (then []NewStreamEvent, err error) {
	_, err = a.below().Decide(newEvents(given), func(state S) (_ []stream.NewEvent, err error) {
		then, err = decide(state)
		return nil, err
	})
	return then, err
}
