package httpapi

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/use/stream"
)

// followEvery is the shortest time between two reads of a stream that changes all the time.
const followEvery = 10 * time.Millisecond

// followStream sends the events of one stream as they are appended, as server-sent events or one
// per line, until the client disconnects or the server stops. The id of a server-sent event says
// how far the stream was read; a client that reconnects with the last one (Last-Event-ID) continues
// right after it.
func (s *Server) followStream(c *call) error {
	if err := followsFrom(c.query, "from"); err != nil {
		return err
	}
	f := &followed{s: s, c: c, stream: c.r.PathValue("stream"), lines: wantsLines(c.r)}
	f.page.c = c
	f.out = newEncoder(&f.page)
	from := c.query.Get("from")
	if last := c.r.Header["Last-Event-Id"]; len(last) > 0 {
		from = last[0]
	} else if c.query.Has("from") && from == "" {
		return kindInvalidRequest.because("from is empty; leave it out to have all events of the stream")
	}
	ctx, cancel := untilDraining(c.r)
	defer cancel()
	memory, err := s.beginWait(c.who, 0)
	if err != nil {
		return err
	}
	topic, err := f.begin(ctx, from)
	if err != nil {
		memory.Release()
		return err
	}
	defer f.watch.Close()
	if f.open, err = s.streams.begin(c.who, topic, memory, cancel); err != nil {
		return err
	}
	defer s.streams.close(f.open)
	s.cfg.Observer.Streaming(+1)
	defer s.cfg.Observer.Streaming(-1)
	f.run(ctx)
	return nil
}

// followed is a stream of a category that a client follows.
type followed struct {
	s        *Server
	c        *call
	category *stream.Category
	stream   string
	watch    *stream.Watch
	open     *openStream
	lines    bool
	page     pageWriter
	out      *encoder
	at       streamPlace
	seen     bool // the stream existed at the last read
}

// streamPlace is how far a stream was read. If the stream has another event, or none, where the
// last one was read, the store has lost the end of the stream.
type streamPlace struct {
	next int64  // version of the next event
	last string // id of the event before it; "": unknown
}

// String returns the place as clients send it back.
func (p streamPlace) String() string {
	e := newEncoder(nil)
	e.int(p.next)
	if p.last != "" {
		e.string("/" + url.QueryEscape(p.last))
	}
	return string(e.buf)
}

func parsePlace(text string) (p streamPlace, err error) {
	version, last, _ := strings.Cut(text, "/")
	next, whole := wholeNumber(version)
	if p.last, err = url.QueryUnescape(last); !whole || next == math.MaxInt64 || err != nil {
		return p, kindInvalidRequest.because("from=%s: it must be a version, the id of an event of this stream, or latest", shorten(text))
	}
	p.next = next
	return p, nil
}

// begin finds the place to begin at, and reads once, so that an error is the answer to the request.
func (f *followed) begin(ctx context.Context, from string) (topic eventlog.Topic, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if f.category, err = f.s.category(ctx, f.c); err != nil {
		return topic, err
	}
	if topic, err = f.s.cfg.Log.TopicByID(f.category.ID()); err != nil {
		return topic, err
	}
	if from == "latest" {
		state, err := f.category.State(ctx, f.stream)
		if err != nil {
			return topic, err
		}
		f.at.next = state.Version
	} else if from != "" {
		if f.at, err = parsePlace(from); err != nil {
			return topic, err
		}
	}
	page, claim, err := f.read(ctx, 1)
	claim.Release()
	if err != nil {
		return topic, err
	}
	if f.seen = page.State.Exists; !f.seen && f.at.last != "" {
		return topic, unknownStream(f.c)
	}
	f.watch, err = f.category.Watch(f.stream)
	return topic, err
}

// read reads a page from the place on, and checks that the event before it is still the one that
// the client got.
func (f *followed) read(ctx context.Context, most int) (page stream.Page, claim *budget.Claim, err error) {
	from := f.at.next
	if f.at.last != "" {
		from-- // to see whether it is the same event
	}
	page, err = f.category.Page(ctx, f.stream, stream.Range{From: from}, f.c.pageLimit(most, &claim))
	switch {
	case err != nil:
		return page, claim, err
	case page.State.Version < f.at.next: // lost
	case !page.State.Exists || f.at.last == "" || page.State.First > from:
		return page, claim, nil
	case len(page.Events) > 0 && page.Events[0].ID == f.at.last:
		page.Events = page.Events[1:]
		return page, claim, nil
	}
	p := kindOutOfRange.because("stream %s is at version %d, and events read before version %d are missing or differ: from is too high, or the store was restored or another server took over, and events were lost. "+
		"Read the stream from the beginning, or continue with from=VERSION", shorten(f.stream), page.State.Version, f.at.next)
	p.Version = &page.State.Version
	return page, claim, p
}

// run sends until ctx ends, the client disconnects, is too slow or loses its access, or the stream
// is deleted.
func (f *followed) run(ctx context.Context) {
	h := f.c.Header()
	h["Content-Type"] = ndjsonType
	if !f.lines {
		h["Content-Type"] = sseType
		f.out.string("retry: " + streamRetry + "\n")
		f.id()
		f.out.string("\n")
	}
	f.page.begin(nil)
	defer f.page.begin(nil) // starts a new deadline, for writing the end of the stream
	f.c.WriteHeader(http.StatusOK)
	if f.c.r.Method == http.MethodHead || f.flush() != nil {
		return
	}
	for more := true; ; {
		if !more && !f.wait(ctx) {
			return
		}
		began := time.Now()
		var err error
		if more, err = f.round(ctx); err != nil || ctx.Err() != nil {
			return
		}
		if rest := followEvery - time.Since(began); !more && rest > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
	}
}

// wait waits for a change of the stream, and sends keep-alives. It returns false when ctx has
// ended, the client has disconnected or has lost its access, or the category was deleted.
func (f *followed) wait(ctx context.Context) bool {
	for {
		_, waiting, stop, err := f.s.streams.refresh(ctx, f.open)
		if err != nil {
			stop()
			return false // the category was deleted
		}
		select {
		case <-f.watch.Changed():
			stop()
			return true
		case <-waiting.Done():
			stop()
			if ctx.Err() != nil {
				return false
			}
		case <-time.After(f.s.cfg.limits.KeepAlive):
			stop()
			f.page.begin(nil)
			f.comment()
			if f.flush() != nil || !f.s.still(f.c, toRead, f.category.Name()) {
				return false
			}
		}
	}
}

// round sends a page. more: call round again without waiting for a change, because there are
// further events, or because the page could not be read or sent. An error ends the stream; a client
// that reconnects gets the reason.
func (f *followed) round(ctx context.Context) (more bool, err error) {
	readCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	page, claim, err := f.read(readCtx, streamPageMax)
	cancel()
	defer claim.Release()
	if !f.s.still(f.c, toRead, f.category.Name()) { // the key may have been revoked while this waited
		return false, context.Canceled
	}
	if err != nil {
		if status := problemOf(err).Status; status < http.StatusInternalServerError && status != kindChanged.status {
			return false, err
		}
		select { // nothing is lost, and the client would only reconnect
		case <-ctx.Done():
		case <-time.After(streamTroubled):
		}
		f.page.begin(nil)
		f.comment()
		return true, f.flush()
	}
	if err := growForEncoder(ctx, claim); err != nil {
		return true, nil // nothing was sent: the page is read again
	}
	f.page.begin(claim)
	defer f.page.finish()
	gone := f.seen && !page.State.Exists
	f.seen = page.State.Exists
	switch {
	case gone:
		f.deleted(page.State.Version)
	case f.seen && f.at.next < page.State.First:
		f.gap(page.State.First)
	}
	for i := range page.Events {
		f.event(&page.Events[i])
	}
	if err := f.flush(); err != nil || !gone {
		return page.More, err
	}
	return false, unknownStream(f.c)
}

// event writes one event.
func (f *followed) event(e *stream.Event) {
	f.at = streamPlace{next: e.Version + 1, last: e.ID}
	f.start("")
	f.out.streamEvent(e)
	f.end()
}

// gap reports versions that were deleted before the client got them, and continues after them.
func (f *followed) gap(to int64) {
	from := f.at.next
	f.at = streamPlace{next: to}
	f.start("gap")
	f.out.string(`{"gap":`)
	f.out.gap(gap{from: eventlog.Offset(from), to: eventlog.Offset(to)})
	f.out.string("}")
	f.end()
}

// deleted reports that the stream was deleted.
func (f *followed) deleted(version int64) {
	f.start("deleted")
	f.out.string(`{"deleted":true,"version":`)
	f.out.int(version)
	f.out.string("}")
	f.end()
}

// start begins a message of a type; "": an event.
func (f *followed) start(kind string) {
	if f.lines {
		return
	}
	if kind != "" {
		f.out.string("event: " + kind + "\n")
	}
	f.id()
	f.out.string("data: ")
}

func (f *followed) id() { f.out.string("id: " + f.at.String() + "\n") }

// end ends a message.
func (f *followed) end() {
	f.out.string("\n")
	if !f.lines {
		f.out.string("\n")
	}
	f.out.spill()
}

// comment writes a keep-alive: a comment in server-sent events, otherwise an empty line.
func (f *followed) comment() {
	if !f.lines {
		f.out.string(":")
	}
	f.out.string("\n")
}

// flush sends what was written to the client.
func (f *followed) flush() error {
	f.out.flush()
	f.out.rest()
	if f.out.err != nil {
		return f.out.err
	}
	return f.page.flush()
}
