package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// eventType is the type of all events of streams.
const eventType = "Changed"

// expectation is the header that expects a version of a stream.
func expectation(expected int64) http.Header {
	switch expected {
	case anyVersion:
		return nil
	case noStream:
		return http.Header{"If-None-Match": {"*"}}
	case streamExists:
		return http.Header{"If-Match": {"*"}}
	}
	return http.Header{"If-Match": {etag(expected)}}
}

func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// callStream makes a call about a stream over HTTP.
func (b *broker) callStream(ctx context.Context, c *streamCall) word {
	method, path, body := "POST", "/v1/streams/"+accounts+"/"+c.stream, any(nil)
	switch c.verb {
	case "append":
		body = bodyOf(c)
	case "delete":
		method = "DELETE"
	default:
		path += "/" + c.verb
	}
	a, err := b.send(context.WithoutCancel(ctx), method, path, body, expectation(c.expected))
	said := word{Outcome: a.outcome}
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
		return word{Outcome: unknown, Err: string(a.body)}
	}
	switch {
	case told.Type == "urn:weir:problem:version_conflict":
		said.State, said.Version, said.Exists = "conflict", told.Version, told.Exists
	case told.Type == "urn:weir:problem:stream_archived":
		said.State = "archived"
	case told.Type == "urn:weir:problem:boundary_conflict":
		said.State = "boundary"
	case c.verb == "append" && a.outcome == done:
		said.Version, said.Places = told.Version, []place{{Offset: told.First}}
		if told.Duplicate {
			said.State = "duplicate"
		}
	default:
		return said
	}
	want := map[string]int{"conflict": http.StatusPreconditionFailed, "boundary": http.StatusPreconditionFailed, "archived": http.StatusConflict, "duplicate": http.StatusOK, "": http.StatusCreated}[said.State]
	if a.status != want || said.State != "archived" && said.State != "boundary" && a.header.Get("Etag") != etag(said.Version) {
		b.w.model.broken("S1", []string{c.stream}, "%s: %s was answered with status %d and ETag %s: %s", b.name, c, a.status, a.header.Get("Etag"), a.body)
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

func (c *streamCall) newEvents() (events []newEvent) {
	for _, v := range c.values {
		e := newEvent{ID: v, Type: eventType, Value: v, Subject: c.subject}
		if c.tag != "" {
			e.Tags = []string{c.tag}
		}
		events = append(events, e)
	}
	return events
}

func bodyOf(c *streamCall) any {
	body := map[string]any{"events": c.newEvents()}
	if c.within != "" {
		body["within"] = c.within
	}
	return body
}

// appendToTwo appends to two streams over HTTP, wherever they are.
func (b *broker) appendToTwo(ctx context.Context, calls []*streamCall) word {
	var parts []map[string]any
	for _, c := range calls {
		parts = append(parts, map[string]any{"category": accounts, "stream": c.stream, "events": c.newEvents()})
	}
	a, err := b.send(context.WithoutCancel(ctx), "POST", "/v1/append", map[string]any{"streams": parts}, nil)
	said := word{Outcome: a.outcome}
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
		return word{Outcome: unknown, Err: string(a.body)}
	}
	switch {
	case told.Type == "urn:weir:problem:stream_archived":
		said.State = "archived"
	case a.outcome == done && len(told.Streams) != len(calls):
		b.w.model.broken("S1", []string{calls[0].stream}, "%s: %s and %s were answered with %s", b.name, calls[0], calls[1], a.body)
		return word{Outcome: unknown}
	}
	for _, s := range told.Streams {
		said.Places = append(said.Places, place{Offset: s.First})
		if s.Duplicate {
			said.State = "duplicate"
		}
	}
	return said
}

// readTag reads the events with a tag, and their boundary.
func (b *broker) readTag(ctx context.Context, tag string) word {
	var read struct {
		Boundary string
		Events   []struct {
			Stream, ID, Value string
			Version           int64
			Erased            bool
		}
	}
	if err := b.get(ctx, "/v1/tagged/"+accounts+"?tag="+tag, &read); err != nil {
		return word{Outcome: refused, Err: err.Error()}
	}
	said := word{Outcome: done, State: read.Boundary}
	for _, e := range read.Events {
		said.Handled = append(said.Handled, sight{e.Stream, place{Offset: e.Version}, seenValue(e.ID, e.Value, e.Erased)})
	}
	return said
}

// saveSnapshot saves a snapshot of a stream over HTTP.
func (b *broker) saveSnapshot(ctx context.Context, s *snapshotSave) word {
	a, err := b.send(ctx, "PUT", "/v1/streams/"+accounts+"/"+s.stream+"/snapshot", map[string]any{"version": s.version, "value": s.data}, nil)
	said := word{Outcome: a.outcome}
	if err != nil {
		said.Err = err.Error()
	}
	return said
}

// loadSnapshot loads the newest snapshot of a stream up to a version over HTTP.
func (b *broker) loadSnapshot(ctx context.Context, stream string, most int64) word {
	a, err := b.send(ctx, "GET", fmt.Sprintf("/v1/streams/%s/%s/snapshot?at=%d", accounts, stream, most), nil, nil)
	if bytes.Contains(a.body, []byte("urn:weir:problem:unknown_snapshot")) {
		return word{Outcome: done}
	}
	var told struct {
		Version int64
		Value   string
	}
	if err == nil {
		err = json.Unmarshal(a.body, &told)
	}
	if err != nil {
		return word{Outcome: refused, Err: err.Error()}
	}
	return word{Outcome: done, Exists: true, Version: told.Version, State: told.Value}
}

// readStream reads a stream from a version to its end, page by page. It is refused where the stream was changed meanwhile.
func (b *broker) readStream(ctx context.Context, stream string, from int64, most int) word {
	said := word{Outcome: done}
	for {
		a, err := b.send(ctx, "GET", fmt.Sprintf("/v1/streams/%s/%s?from=%d&max=%d", accounts, stream, from, most), nil, nil)
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
			return word{Outcome: refused, Err: err.Error()}
		}
		if page.First > from && len(said.Handled) > 0 {
			return word{Outcome: refused, Err: "events were deleted meanwhile"}
		}
		next := from
		for _, e := range page.Events {
			said.Handled = append(said.Handled, sight{stream, place{Offset: e.Version}, seenValue(e.ID, e.Value, e.Erased)})
			next = e.Version + 1
		}
		if len(page.Events) > most || a.header.Get("Etag") != etag(page.Version) || page.Next == nil && len(page.Events) > 0 && next != page.Version || page.Next != nil && *page.Next != next {
			b.w.model.broken("S2", []string{stream}, "%s: a page of %d events of %s from version %d has ETag %s: %s", b.name, most, stream, from, a.header.Get("Etag"), a.body)
			return word{Outcome: refused}
		}
		if page.Next == nil {
			return said
		}
		from = next
	}
}
