package stream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Headers of an event's record.
const (
	HeaderID      = "weir.event.id"
	HeaderType    = "weir.event.type"
	HeaderVersion = "weir.stream.version" // in decimal digits
	HeaderSubject = "weir.event.subject"  // whom it is about; then the value is encrypted
	HeaderKey     = "weir.event.key"      // which key of the subject encrypts the value
	HeaderTag     = "weir.event.tag"      // one for each tag
	headerTagged  = "weir.event.tagged"   // follows each tag: the event's number among the events with that tag
)

// Names of common metadata, as CloudEvents and most event stores have them.
const (
	ContentType   = "content-type"
	CausationID   = "causation-id"
	CorrelationID = "correlation-id"
)

// TypeDeleted is the type of the record that a deletion appends. It is no event of the stream, and
// has no version.
const TypeDeleted = "weir.deleted"

const (
	idMax   = 128    // bytes of an event's id
	typeMax = 255    // bytes of an event's type
	manyMax = 10_000 // events of one append: each is a key, and other changes of keys wait meanwhile
)

// NewEvent is an event to append. Its bytes must not be changed after it was passed to a function.
type NewEvent struct {
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
	Metadata []batch.RecordHeader // names beginning with "weir." are refused
	Time     time.Time            // default: now. The category's records have it, too, unless its message.timestamp.type is LogAppendTime
}

// Event is an event of a stream.
type Event struct {
	Stream   string
	Version  int64 // the event's version in the stream; the first event has 0
	ID       string
	Type     string
	Data     []byte // nil if it is Erased
	Subject  string
	Erased   bool // its subject was forgotten
	Tags     []string
	Metadata []batch.RecordHeader
	Time     time.Time

	key string // which key of the subject encrypts Data; "" once Data is decrypted or erased
}

func (e *NewEvent) check(n int) error {
	invalid := func(what, value, why string) error {
		return &eventlog.InvalidError{What: fmt.Sprintf("%s of event %d", what, n), Value: shorten(value), Why: why}
	}
	switch {
	case len(e.ID) > idMax:
		return invalid("id", e.ID, fmt.Sprintf("it has %d bytes; at most %d are allowed", len(e.ID), idMax))
	case !utf8.ValidString(e.ID):
		return invalid("id", e.ID, "it is not UTF-8")
	case e.Type == "":
		return invalid("type", e.Type, "it is empty")
	case len(e.Type) > typeMax:
		return invalid("type", e.Type, fmt.Sprintf("it has %d bytes; at most %d are allowed", len(e.Type), typeMax))
	case !utf8.ValidString(e.Type):
		return invalid("type", e.Type, "it is not UTF-8")
	case strings.HasPrefix(e.Type, "weir."):
		return invalid("type", e.Type, "types that begin with weir. are reserved")
	}
	if e.Subject != "" {
		if err := checkSubject(e.Subject); err != nil {
			return fmt.Errorf("event %d: %w", n, err)
		}
	}
	if err := checkTags(e.Tags); err != nil {
		return fmt.Errorf("event %d: %w", n, err)
	}
	if !e.Time.IsZero() && (e.Time.UnixMilli() < 0 || e.Time.UnixMilli() > batch.MaxTimestamp) {
		return invalid("time", e.Time.Format(time.RFC3339), "the years 1970 to 9999 are allowed")
	}
	for _, m := range e.Metadata {
		if strings.HasPrefix(m.Key, "weir.") {
			return invalid("metadata", m.Key, "names that begin with weir. are reserved")
		}
	}
	return nil
}

// record returns the record of an event, without the event's version.
func (e *NewEvent) record(stream string, now time.Time) batch.Record {
	at := e.Time
	if at.IsZero() {
		at = now
	}
	headers := make([]batch.RecordHeader, 0, 5+2*len(e.Tags)+len(e.Metadata))
	headers = append(headers, batch.RecordHeader{Key: HeaderID, Value: []byte(e.ID)}, batch.RecordHeader{Key: HeaderType, Value: []byte(e.Type)}, batch.RecordHeader{Key: HeaderVersion})
	data := e.Data
	if data == nil {
		data = []byte{} // null is Kafka's tombstone
	}
	if e.Subject != "" { // protect fills it in
		data = make([]byte, len(e.Data)+sealedMore)
		headers = append(headers, batch.RecordHeader{Key: HeaderSubject, Value: []byte(e.Subject)}, batch.RecordHeader{Key: HeaderKey, Value: make([]byte, keyIDLength)})
	}
	for _, tag := range e.Tags { // Category.tag writes the event's number later; this is the longest one
		headers = append(headers, batch.RecordHeader{Key: HeaderTag, Value: []byte(tag)}, batch.RecordHeader{Key: headerTagged, Value: []byte(digits(0))})
	}
	return batch.Record{Timestamp: at.UnixMilli(), Key: []byte(stream), Value: data, Headers: append(headers, e.Metadata...)}
}

// keyHeader is the index of HeaderKey in the headers of an encrypted event.
const keyHeader = 4

// setVersion writes the version of a record that record made.
func setVersion(r *batch.Record, version int64) {
	r.Headers[2].Value = strconv.AppendInt(nil, version, 10)
}

// eventOf reads an event from its record.
func eventOf(r batch.Record, version int64) Event {
	e := Event{Stream: string(r.Key), Version: version, Data: r.Value, Time: time.UnixMilli(r.Timestamp)}
	for _, h := range r.Headers {
		switch h.Key {
		case HeaderID:
			e.ID = string(h.Value)
		case HeaderType:
			e.Type = string(h.Value)
		case HeaderSubject:
			e.Subject = string(h.Value)
		case HeaderKey:
			e.key = string(h.Value)
		case HeaderTag:
			e.Tags = append(e.Tags, string(h.Value))
		case HeaderVersion, headerTagged:
		default:
			e.Metadata = append(e.Metadata, h)
		}
	}
	return e
}

// sameAs reports whether an event is the one that was to be appended. A time that was not set
// matches any time.
func (e Event) sameAs(n NewEvent) bool {
	return e.Type == n.Type && e.Subject == n.Subject && slices.Equal(e.Tags, n.Tags) && (e.Erased || string(e.Data) == string(n.Data)) && (n.Time.IsZero() || e.Time.UnixMilli() == n.Time.UnixMilli()) &&
		slices.EqualFunc(e.Metadata, n.Metadata, func(a, b batch.RecordHeader) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value)
		})
}
