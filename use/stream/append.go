package stream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// Expected is the version at which a stream must be for an append: 0 or more, or one of the
// constants. A stream at version n has had n events, so n is also the version that the first new
// event gets.
type Expected int64

const (
	Any      Expected = -1 // any version, also if the stream does not exist
	NoStream Expected = -2 // it does not exist: it was never begun, or is deleted
	Exists   Expected = -3 // it exists
)

func (e Expected) String() string {
	switch e {
	case Any:
		return "any version"
	case NoStream:
		return "no stream"
	case Exists:
		return "a stream that exists"
	}
	return "version " + strconv.FormatInt(int64(e), 10)
}

// allows reports whether a stream is as expected.
func (e Expected) allows(h head) bool {
	switch e {
	case Any:
		return true
	case NoStream:
		return !h.exists()
	case Exists:
		return h.exists()
	}
	return int64(e) == h.Next
}

// Appended says where events were appended.
type Appended struct {
	First     int64 // version of the first of them
	Version   int64 // the stream's version after them
	Duplicate bool  // events with these ids were there already
}

// Append appends events durably if the stream is as expected: all of them, with consecutive
// versions, or none. A *ConflictError says at which version the stream was.
//
// After eventlog.ErrUnsure the events may have been appended. Append them again with the same ids:
// events that are there already are recognised by their ids, and Appended.Duplicate is set. This
// needs an id on every event. ErrIDReused: the events there have other content.
//
// If the parameter expected is a version, events are recognised for ever, unless they were deleted
// since. With Any, NoStream and Exists the whole list of ids is recognised, for 24 hours: the same
// events one by one, or with another event, are new events. A list is recognised after a deletion,
// too: it is a Duplicate, although the stream does not exist.
//
// These errors also refuse the events for good: *eventlog.InvalidError, eventlog.ErrTooLarge
// (max.message.bytes of the category, for all events of the call), ErrUnknownCategory.
// eventlog.ErrUnavailable: certainly not appended; trying again may work.
//
// While a transaction that has appended to the stream with SQL is open, Append waits. If ctx ends
// first, the error is eventlog.ErrHeld: nothing was appended.
func (c *Category) Append(ctx context.Context, stream string, expected Expected, events ...NewEvent) (Appended, error) {
	return c.append(ctx, Boundary{}, stream, expected, events)
}

func (c *Category) append(ctx context.Context, within Boundary, stream string, expected Expected, events []NewEvent) (done Appended, err error) {
	o, err := c.prepare(stream, expected, events)
	if err == nil {
		o.within = within.versions
		err = c.protect(ctx, o, false)
	}
	if err == nil {
		done, err = c.owner.writer(c, stream).do(ctx, o)
	}
	c.count(done, err)
	if err != nil {
		return Appended{}, fmt.Errorf("append %s to stream %q of category %q: %w", plural(len(events), "event"), shorten(stream), c.Name(), err)
	}
	return done, nil
}

// op is one append, a deletion, a removal of older events (keep), a change of the head alone
// (edit), or a snapshot to save.
type op struct {
	stream   string
	expected Expected
	events   []NewEvent
	records  []batch.Record
	size     int              // how many bytes the records take in a batch of their own, at most
	keys     []eventlog.Check // check that the subjects' keys that encrypt its events still exist
	idKey    string           // the key under which the append is found by its ids; "": none is needed, or nobody can repeat it
	// decoded is how many bytes the decoded records take; batch.DecodedMax is the limit.
	decoded int
	// repeatable: the caller gave every event an id, so the append may be a repetition.
	repeatable bool
	deletes    bool
	keep       int64 // if events are removed: those from this version on are kept
	snapshot   *Snapshot
	within     map[string]eventlog.Version // the versions that tags' keys must still have
	edit       func(head) head             // if not nil, the operation only replaces the stream's head by the result of edit
	told       []eventlog.Batch            // the audit's records of the operation, appended in the same entry
	unless     func(head) bool             // if it returns true for the stream's head, the operation is skipped, and its answer is a Duplicate; nil: never
}

// prepare checks an append and makes its records.
func (c *Category) prepare(stream string, expected Expected, events []NewEvent) (*op, error) {
	o, err := c.newOp(stream, expected, events)
	if err != nil {
		return nil, err
	}
	topic, err := c.knownTopic()
	if err != nil {
		return nil, err
	}
	if most := topic.MaxMessageBytes(); o.size > most {
		return nil, fmt.Errorf("%w: the events take %d bytes, but max.message.bytes of the category is %d: append fewer events in one call, or raise that setting", eventlog.ErrTooLarge, o.size, most)
	}
	if err := checkTogether([]Part{{Category: c, Stream: stream}}, []*op{o}); err != nil {
		return nil, err
	}
	if o.decoded > batch.DecodedMax {
		return nil, fmt.Errorf("%w: the events take %d bytes of memory besides their data, the limit is %d: append fewer events in one call, or less metadata", eventlog.ErrTooLarge, o.decoded, batch.DecodedMax)
	}
	return o, nil
}

// newOp is prepare without the limits for the size of all events.
func (c *Category) newOp(stream string, expected Expected, events []NewEvent) (*op, error) {
	if err := checkName(stream); err != nil {
		return nil, err
	}
	if expected < Exists {
		return nil, &eventlog.InvalidError{What: "expected version", Value: strconv.FormatInt(int64(expected), 10), Why: "use a version from 0 on, or Any, NoStream or Exists"}
	}
	if len(events) == 0 || len(events) > manyMax {
		return nil, &eventlog.InvalidError{What: "number of events", Value: strconv.Itoa(len(events)), Why: fmt.Sprintf("an append has 1 to %d", manyMax)}
	}
	o := &op{stream: stream, expected: expected, events: slices.Clone(events), repeatable: true}
	now := time.Now()
	ids := sha256.New()
	fmt.Fprintf(ids, "%s/%d/%s", c.topic.ID, len(stream), stream)
	seen := make(map[string]bool, len(events))
	for i := range o.events {
		e := &o.events[i]
		if err := e.check(i); err != nil {
			return nil, err
		}
		if e.ID == "" {
			e.ID, o.repeatable = rand.Text(), false
		}
		if seen[e.ID] {
			return nil, &eventlog.InvalidError{What: fmt.Sprintf("id of event %d", i), Value: shorten(e.ID), Why: "an earlier event of the call has the same id"}
		}
		seen[e.ID] = true
		fmt.Fprintf(ids, "/%d/%s", len(e.ID), e.ID)
		r := e.record(stream, now)
		setVersion(&r, 1<<62) // it is not known yet: this is the longest
		o.size += batch.SealedSize(&r)
		o.decoded += r.DecodedSize()
		o.records = append(o.records, r)
	}
	if o.repeatable && expected < 0 {
		o.idKey = idPrefix + c.topic.ID.String() + "/" + hex.EncodeToString(ids.Sum(nil))
	}
	return o, nil
}

// EntryBytes estimates how many bytes of memory an append of events takes besides the events: their
// records, and the batch and the keys of its entry.
func EntryBytes(stream string, events []NewEvent) (n int64) {
	const each = 256 // bytes of one put or check with a category's id in its key, but without the name (of a stream, tag or subject) and the value
	name := int64(len(url.PathEscape(stream)))
	for i := range events {
		e := &events[i]
		size := int64(len(stream) + len(e.ID) + len(e.Type) + len(e.Data) + len(e.Subject))
		for _, m := range e.Metadata {
			size += int64(len(m.Key) + len(m.Value))
		}
		for _, tag := range e.Tags {
			size += int64(len(tag))
			n += 2*(each+int64(len(url.PathEscape(tag)))) + name // the tag's number of events, and where this one is
		}
		if e.Subject != "" {
			n += each + int64(len(e.Subject))
		}
		n += 3*size + each + name // size: in the record, in the batch, and in the value of the event's key; each + name: the put of that key
	}
	return n
}

// partitionOf returns the partition that a stream gets with its first event: that of its name as a
// record's key.
func partitionOf(topic eventlog.Topic, stream string) eventlog.Partition {
	return topic.Partitions[publish.Default(&publish.Event{Key: []byte(stream)}, len(topic.Partitions))]
}

// found reports whether an append was carried out before. It is for an append that conflicts, or
// whose id key exists.
func (c *Category) found(ctx context.Context, o *op) (Appended, bool, error) {
	done, err := foundAll(ctx, []Part{{Category: c, Stream: o.stream}}, []*op{o})
	if done == nil || err != nil {
		return Appended{}, false, err
	}
	return done[0], true, nil
}
