package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/weir-log/weir/internal/judge"
)

// eventType is the type of all events of streams.
const eventType = "Changed"

// expectation is the header that expects a version of a stream.
func expectation(expected int64) http.Header {
	switch expected {
	case judge.AnyVersion:
		return nil
	case judge.NoStream:
		return http.Header{"If-None-Match": {"*"}}
	case judge.StreamExists:
		return http.Header{"If-Match": {"*"}}
	}
	return http.Header{"If-Match": {etag(expected)}}
}

func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// callStream makes a call about a stream over HTTP.
func (b *broker) callStream(ctx context.Context, c *judge.StreamCall) judge.Word {
	method, path, body := "POST", "/v1/categories/"+judge.Accounts+"/streams/"+c.Stream, any(nil)
	switch c.Verb {
	case "append":
		path += "/events"
		body = bodyOf(c)
	case "delete":
		method = "DELETE"
	default:
		path += "/" + c.Verb
	}
	a, err := b.send(context.WithoutCancel(ctx), method, path, body, expectation(c.Expected))
	said := judge.Word{Outcome: a.outcome}
	if err != nil {
		said.Err = err.Error()
	}
	var told struct {
		First, Version int64
		Duplicate      bool
		Exists         bool
		Type           string
	}
	if a.status != 0 && a.status != http.StatusNoContent && json.Unmarshal(a.body, &told) != nil {
		return judge.Word{Outcome: judge.Unknown, Err: string(a.body)}
	}
	switch {
	case told.Type == "urn:weir:problem:version_conflict":
		said.State, said.Version, said.Exists = "conflict", told.Version, told.Exists
	case told.Type == "urn:weir:problem:stream_archived":
		said.State = "archived"
	case told.Type == "urn:weir:problem:boundary_conflict":
		said.State = "boundary"
	case c.Verb == "append" && a.outcome == judge.Done:
		said.Version, said.Places = told.Version, []judge.Place{{Offset: told.First}}
		if told.Duplicate {
			said.State = "duplicate"
		}
	default:
		return said
	}
	want := map[string]int{"conflict": http.StatusPreconditionFailed, "boundary": http.StatusPreconditionFailed, "archived": http.StatusConflict, "duplicate": http.StatusOK, "": http.StatusCreated}[said.State]
	if a.status != want || said.State != "archived" && said.State != "boundary" && a.header.Get("Etag") != etag(said.Version) {
		b.w.model.Broken("S1", []string{c.Stream}, "%s: %s was answered with status %d and ETag %s: %s", b.name, c, a.status, a.header.Get("Etag"), a.body)
	}
	return said
}

// newEvent is an event as HTTP takes it.
type newEvent struct {
	ID      string   `json:"id"`
	Type    string   `json:"type"`
	Value   string   `json:"value"`
	Subject string   `json:"subject,omitempty"`
	Tags    []string `json:"tags,omitempty"`
}

func newEvents(c *judge.StreamCall) (events []newEvent) {
	for _, v := range c.Values {
		e := newEvent{ID: v, Type: eventType, Value: v, Subject: c.Subject}
		if c.Tag != "" {
			e.Tags = []string{c.Tag}
		}
		events = append(events, e)
	}
	return events
}

func bodyOf(c *judge.StreamCall) any {
	body := map[string]any{"events": newEvents(c)}
	if c.Within != "" {
		body["within"] = c.Within
	}
	return body
}

// appendToTwo appends to two streams over HTTP, wherever they are.
func (b *broker) appendToTwo(ctx context.Context, calls []*judge.StreamCall) judge.Word {
	var parts []map[string]any
	for _, c := range calls {
		parts = append(parts, map[string]any{"category": judge.Accounts, "stream": c.Stream, "events": newEvents(c)})
	}
	a, err := b.send(context.WithoutCancel(ctx), "POST", "/v1/categories/append", map[string]any{"streams": parts}, nil)
	said := judge.Word{Outcome: a.outcome}
	if err != nil {
		said.Err = err.Error()
	}
	var told struct {
		Type    string
		Streams []struct {
			First     int64
			Duplicate bool
		}
	}
	if a.status != 0 && json.Unmarshal(a.body, &told) != nil {
		return judge.Word{Outcome: judge.Unknown, Err: string(a.body)}
	}
	switch {
	case told.Type == "urn:weir:problem:stream_archived":
		said.State = "archived"
	case a.outcome == judge.Done && len(told.Streams) != len(calls):
		b.w.model.Broken("S1", []string{calls[0].Stream}, "%s: %s and %s were answered with %s", b.name, calls[0], calls[1], a.body)
		return judge.Word{Outcome: judge.Unknown}
	}
	for _, s := range told.Streams {
		said.Places = append(said.Places, judge.Place{Offset: s.First})
		if s.Duplicate {
			said.State = "duplicate"
		}
	}
	return said
}

// readTag reads the events with a tag, and their boundary.
func (b *broker) readTag(ctx context.Context, tag string) judge.Word {
	var read struct {
		Boundary string
		Events   []struct {
			Stream, ID, Value string
			Version           int64
			Erased            bool
		}
	}
	if err := b.get(ctx, "/v1/categories/"+judge.Accounts+"/events?tag="+tag, &read); err != nil {
		return judge.Word{Outcome: judge.Refused, Err: err.Error()}
	}
	said := judge.Word{Outcome: judge.Done, State: read.Boundary}
	for _, e := range read.Events {
		said.Handled = append(said.Handled, judge.Sight{Topic: e.Stream, Place: judge.Place{Offset: e.Version}, Value: judge.SeenValue(e.ID, e.Value, e.Erased)})
	}
	return said
}

// saveSnapshot saves a snapshot of a stream over HTTP.
func (b *broker) saveSnapshot(ctx context.Context, s *judge.SnapshotSave) judge.Word {
	a, err := b.send(ctx, "PUT", "/v1/categories/"+judge.Accounts+"/streams/"+s.Stream+"/snapshot", map[string]any{"version": s.Version, "value": s.Data}, nil)
	said := judge.Word{Outcome: a.outcome}
	if err != nil {
		said.Err = err.Error()
	}
	return said
}

// loadSnapshot loads the newest snapshot of a stream up to a version over HTTP.
func (b *broker) loadSnapshot(ctx context.Context, stream string, most int64) judge.Word {
	a, err := b.send(ctx, "GET", fmt.Sprintf("/v1/categories/%s/streams/%s/snapshot?at=%d", judge.Accounts, stream, most), nil, nil)
	if bytes.Contains(a.body, []byte("urn:weir:problem:unknown_snapshot")) {
		return judge.Word{Outcome: judge.Done}
	}
	var told struct {
		Version int64
		Value   string
	}
	if err == nil {
		err = json.Unmarshal(a.body, &told)
	}
	if err != nil {
		return judge.Word{Outcome: judge.Refused, Err: err.Error()}
	}
	return judge.Word{Outcome: judge.Done, Exists: true, Version: told.Version, State: told.Value}
}

// readStream reads a stream from a version to its end, page by page. It is refused where the stream
// was changed meanwhile.
func (b *broker) readStream(ctx context.Context, stream string, from int64, most int) judge.Word {
	said := judge.Word{Outcome: judge.Done}
	for {
		a, err := b.send(ctx, "GET", fmt.Sprintf("/v1/categories/%s/streams/%s/events?from=%d&max=%d", judge.Accounts, stream, from, most), nil, nil)
		if bytes.Contains(a.body, []byte("urn:weir:problem:unknown_stream")) && len(said.Handled) == 0 {
			return said // it does not exist
		}
		var page struct {
			Version, First int64
			Next           *int64
			Events         []struct {
				Version int64
				ID      string
				Value   string
				Erased  bool
			}
		}
		if err == nil {
			err = json.Unmarshal(a.body, &page)
		}
		if err != nil {
			return judge.Word{Outcome: judge.Refused, Err: err.Error()}
		}
		if page.First > from && len(said.Handled) > 0 {
			return judge.Word{Outcome: judge.Refused, Err: "events were deleted meanwhile"}
		}
		next := from
		for _, e := range page.Events {
			said.Handled = append(said.Handled, judge.Sight{Topic: stream, Place: judge.Place{Offset: e.Version}, Value: judge.SeenValue(e.ID, e.Value, e.Erased)})
			next = e.Version + 1
		}
		if len(page.Events) > most || a.header.Get("Etag") != etag(page.Version) || page.Next == nil && len(page.Events) > 0 && next != page.Version || page.Next != nil && *page.Next != next {
			b.w.model.Broken("S2", []string{stream}, "%s: a page of %d events of %s from version %d has ETag %s: %s", b.name, most, stream, from, a.header.Get("Etag"), a.body)
			return judge.Word{Outcome: judge.Refused}
		}
		if page.Next == nil {
			return said
		}
		from = next
	}
}
