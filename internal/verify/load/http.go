package load

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// API is an HTTP client of a server.
type API interface {
	// Ask sends a request with a body as JSON (nil: none) to the path of these parts, and reads the
	// answer into out. wait is how long the server may wait before it answers. headers are pairs of
	// a name and a value. The error is Refused if certainly nothing was changed; it wraps ErrGone
	// if what the path names does not exist.
	Ask(ctx context.Context, method string, path []string, query url.Values, body, out any, wait time.Duration, headers ...string) error
}

// ErrGone: there is nothing of this name.
var ErrGone = errors.New("it does not exist")

// HTTP returns the protocols of a server: publishing and consuming, a work queue, and event-sourced
// streams. names begins the names of all that they make.
func HTTP(api API, names string) []Protocol {
	return []Protocol{&httpTopic{API: api, topic: names + "-topic"}, &httpQueue{API: api, queue: names + "-queue"}, &httpStreams{API: api, category: names + "-streams"}}
}

// value is a value in one of its two forms.
type value struct {
	Text   *string `json:"value,omitempty"`
	Base64 []byte  `json:"value_b64,omitempty"`
}

func (v value) bytes() []byte {
	if v.Text != nil {
		return []byte(*v.Text)
	}
	return v.Base64
}

// eventsOf are events as requests have them, each with the fields of more.
func eventsOf(events [][]byte, more map[string]any) (list []map[string]any) {
	for _, e := range events {
		one := map[string]any{"value_b64": base64.StdEncoding.EncodeToString(e)}
		for k, v := range more {
			one[k] = v
		}
		list = append(list, one)
	}
	return list
}

const (
	// pageMost is how many events are asked for at once, and httpWait how long a server may wait
	// for the first one.
	pageMost = 1000
	httpWait = 2 * time.Second
	// httpSession is how long a member that does not ask keeps its partitions.
	httpSession = 5 * time.Second
)

func count(n int) []string                { return []string{strconv.Itoa(n)} }
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// httpTopic publishes batches to a topic, and consumes it as a member of a group.
type httpTopic struct {
	API
	topic string
}

func (p *httpTopic) Traits() Traits {
	return Traits{Name: "HTTP", Where: "topic and group " + p.topic, Ordered: true, Audited: true}
}

func (p *httpTopic) Create(ctx context.Context) error {
	return p.Ask(ctx, "POST", []string{"topics"}, nil, map[string]any{"name": p.topic, "partitions": partitions}, nil, 0)
}

func (p *httpTopic) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	body := map[string]any{"events": eventsOf(events, map[string]any{"key": keyOf(writer)})}
	return Wrote{}, p.Ask(ctx, "POST", []string{"topics", p.topic, "batch"}, nil, body, nil, 0)
}

func (p *httpTopic) Read(ctx context.Context, to *Reader) error {
	var joined struct{ ID string }
	body := map[string]any{"topics": []string{p.topic}, "session_ms": httpSession.Milliseconds(), "client": "weir verify --load"}
	if err := p.Ask(ctx, "POST", []string{"groups", p.topic, "members"}, nil, body, &joined, 0); err != nil {
		return err
	}
	member := []string{"groups", p.topic, "members", joined.ID}
	defer func() { // leave, so that nobody waits until the member's session ends
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpSession)
		defer cancel()
		_ = p.Ask(leaving, "DELETE", member, nil, nil, nil, 0)
	}()
	for ctx.Err() == nil {
		if err := p.page(ctx, member, to); err != nil {
			return err
		}
	}
	return nil
}

// page reads events as a member, and commits them.
func (p *httpTopic) page(ctx context.Context, member []string, to *Reader) error {
	var page struct {
		Events []value
		Next   string
	}
	if err := p.Ask(ctx, "GET", append(member[:4:4], "events"), url.Values{"max": count(pageMost), "wait_ms": {milliseconds(httpWait)}}, nil, &page, httpWait); err != nil {
		return err
	}
	events := make([][]byte, len(page.Events))
	for i, e := range page.Events {
		events[i] = e.bytes()
		if err := to.Got(events[i]); err != nil {
			return err
		}
	}
	if err := to.Flush(); err != nil || len(events) == 0 {
		return err
	}
	if err := p.Ask(ctx, "POST", append(member[:4:4], "commit"), nil, map[string]any{"next": page.Next}, nil, 0); err != nil {
		return err
	}
	return to.Acked(events...)
}

func (p *httpTopic) Audit(ctx context.Context, to *Reader) error {
	for i := range partitions {
		path := []string{"topics", p.topic, "partitions", strconv.Itoa(i), "events"}
		for from, more := int64(0), true; more; {
			var page struct {
				Events []value
				Next   int64 `json:"next_offset"`
				End    int64 `json:"end_offset"`
			}
			if err := p.Ask(ctx, "GET", path, url.Values{"offset": {strconv.FormatInt(from, 10)}, "max": count(pageMost)}, nil, &page, 0); err != nil {
				return err
			}
			for _, e := range page.Events {
				if err := to.Got(e.bytes()); err != nil {
					return err
				}
			}
			from, more = page.Next, page.Next < page.End
		}
	}
	return to.Flush()
}

func (p *httpTopic) Remove(ctx context.Context) error {
	return errors.Join(
		gone(p.Ask(ctx, "DELETE", []string{"topics", p.topic}, nil, nil, nil, 0), ErrGone),
		gone(p.Ask(ctx, "DELETE", []string{"groups", p.topic}, nil, nil, nil, 0), ErrGone),
	)
}

// httpQueue enqueues messages, claims them and acknowledges them.
type httpQueue struct {
	API
	queue string
}

func (p *httpQueue) Traits() Traits {
	return Traits{Name: "HTTP queue", Where: "queue " + p.queue + " with its topics"}
}

func (p *httpQueue) Create(ctx context.Context) error {
	settings := map[string]any{"lease_ms": queueLease.Milliseconds(), "attempts": -1}
	return p.Ask(ctx, "POST", []string{"queues"}, nil, map[string]any{"name": p.queue, "partitions": partitions, "settings": settings}, nil, 0)
}

func (p *httpQueue) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	body := map[string]any{"messages": eventsOf(events, map[string]any{"key": keyOf(writer)})}
	return Wrote{}, p.Ask(ctx, "POST", []string{"queues", p.queue, "batch"}, nil, body, nil, 0)
}

func (p *httpQueue) Read(ctx context.Context, to *Reader) error {
	for ctx.Err() == nil {
		if err := p.work(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// work claims some messages and acknowledges them.
func (p *httpQueue) work(ctx context.Context, to *Reader) error {
	var got struct {
		Messages []struct {
			value
			Receipt string
		}
	}
	body := map[string]any{"max": claimMost, "wait_ms": httpWait.Milliseconds(), "worker": "weir verify --load"}
	if err := p.Ask(ctx, "POST", []string{"queues", p.queue, "claim"}, nil, body, &got, httpWait); err != nil {
		return err
	}
	receipts := make([]string, len(got.Messages))
	for i, m := range got.Messages {
		receipts[i] = m.Receipt
		if err := to.Got(m.bytes()); err != nil {
			return err
		}
	}
	if err := to.Flush(); err != nil || len(receipts) == 0 {
		return err
	}
	var said struct {
		Results []struct {
			Status  int
			Problem *struct{ Title, Detail string }
		}
	}
	acking, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := p.Ask(acking, "POST", []string{"queues", p.queue, "ack"}, nil, map[string]any{"receipts": receipts}, &said, 0); err != nil {
		return err
	}
	if len(said.Results) != len(receipts) {
		return fmt.Errorf("acknowledge %d messages: the server answered for %d", len(receipts), len(said.Results))
	}
	var done [][]byte
	var failed error
	for i, result := range said.Results {
		switch {
		case result.Status < http.StatusMultipleChoices:
			done = append(done, got.Messages[i].bytes())
		case result.Problem != nil:
			failed = fmt.Errorf("acknowledge a message: %s: %s", result.Problem.Title, result.Problem.Detail)
		}
	}
	return errors.Join(failed, to.Acked(done...))
}

func (p *httpQueue) Audit(context.Context, *Reader) error { return errHandled }

func (p *httpQueue) Remove(ctx context.Context) error {
	return errors.Join(
		gone(p.Ask(ctx, "DELETE", []string{"queues", p.queue}, nil, nil, nil, 0), ErrGone),
		gone(p.Ask(ctx, "DELETE", []string{"topics", p.queue}, nil, nil, nil, 0), ErrGone),
		gone(p.Ask(ctx, "DELETE", []string{"topics", p.queue + deadLetters}, nil, nil, nil, 0), ErrGone),
	)
}

// httpStreams appends to a stream for each writer, and reads the streams by version.
type httpStreams struct {
	API
	category string
	versions versions
	next     nextVersions
}

func (p *httpStreams) Traits() Traits {
	return Traits{Name: "HTTP streams", Where: "category " + p.category, Ordered: true, Versioned: true, Audited: true}
}

func (p *httpStreams) Create(ctx context.Context) error {
	return p.Ask(ctx, "POST", []string{"categories"}, nil, map[string]any{"name": p.category, "partitions": partitions}, nil, 0)
}

func (p *httpStreams) stream(name string) []string {
	return []string{"categories", p.category, "streams", name, "events"}
}

// streamPage is a page of a stream's events.
type streamPage struct {
	Version int64 // of the stream
	Next    *int64
	Events  []struct {
		value
		Version int64
	}
}

func (p *httpStreams) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	expected, err := p.versions.of(writer, func() (int64, error) {
		page, err := p.read(ctx, keyOf(writer), 0, 1)
		return page.Version, err
	})
	if err != nil {
		return Wrote{}, Refused(err) // nothing was sent
	}
	header := []string{"If-Match", `"` + strconv.FormatInt(expected, 10) + `"`}
	if expected == 0 {
		header = []string{"If-None-Match", "*"}
	}
	list := eventsOf(events, map[string]any{"type": "load"})
	for _, e := range list {
		e["id"] = eventID()
	}
	var at struct{ First, Version int64 }
	if err := p.Ask(ctx, "POST", p.stream(keyOf(writer)), nil, map[string]any{"events": list}, &at, 0, header...); err != nil {
		p.versions.forget(writer)
		return Wrote{}, err
	}
	p.versions.set(writer, at.Version)
	return Wrote{Version: at.First}, nil
}

// read reads a page of a stream; it is empty if there is no such stream.
func (p *httpStreams) read(ctx context.Context, stream string, from int64, most int) (page streamPage, err error) {
	err = p.Ask(ctx, "GET", p.stream(stream), url.Values{"from": {strconv.FormatInt(from, 10)}, "max": count(most)}, nil, &page, 0)
	return page, gone(err, ErrGone)
}

func (p *httpStreams) Read(ctx context.Context, to *Reader) error {
	return p.next.follow(ctx, func(next map[string]int64) error { return p.readFrom(ctx, next, to) })
}

// readFrom reads what streams have from the versions in next on, and moves these.
func (p *httpStreams) readFrom(ctx context.Context, next map[string]int64, to *Reader) error {
	var list struct{ Streams []struct{ Stream string } }
	if err := p.Ask(ctx, "GET", []string{"categories", p.category, "streams"}, url.Values{"max": count(pageMost)}, nil, &list, 0); err != nil {
		return err
	}
	for _, s := range list.Streams {
		for more := true; more; {
			page, err := p.read(ctx, s.Stream, next[s.Stream], pageMost)
			if err != nil {
				return err
			}
			for _, e := range page.Events {
				if err := to.GotAt(e.bytes(), e.Version); err != nil {
					return err
				}
				next[s.Stream] = e.Version + 1
			}
			more = page.Next != nil && len(page.Events) > 0
		}
	}
	return to.Flush()
}

func (p *httpStreams) Audit(ctx context.Context, to *Reader) error {
	return p.readFrom(ctx, map[string]int64{}, to)
}

func (p *httpStreams) Remove(ctx context.Context) error {
	return gone(p.Ask(ctx, "DELETE", []string{"topics", p.category}, nil, nil, nil, 0), ErrGone)
}
