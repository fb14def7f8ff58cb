package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// counted is a store that counts its calls, but for the polls of the log.
type counted struct {
	eventlog.Store
	mu    sync.Mutex // guards calls
	calls map[string]int
}

func (s *counted) Unwrap() eventlog.Store { return s.Store }

func (s *counted) count(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
}

// take returns how many calls there were since the last take, and of which kinds.
func (s *counted) take() (n int, kinds string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range slices.Sorted(maps.Keys(s.calls)) {
		n += s.calls[call]
		kinds += fmt.Sprintf(" %s:%d", call, s.calls[call])
	}
	s.calls = make(map[string]int)
	return n, kinds
}

func (s *counted) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.count("commit")
	time.Sleep(time.Millisecond) // fake time: what is submitted meanwhile is the next commit
	return s.Store.Commit(ctx, flush)
}

func (s *counted) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.count("read")
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *counted) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s.count("trim")
	return s.Store.Trim(ctx, trims)
}

func (s *counted) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.count("seek")
	return s.Store.Seek(ctx, goals)
}

func (s *counted) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kind, _, _ := strings.Cut(strings.ReplaceAll(prefix, "/", "."), ".")
	s.count("list " + kind)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *counted) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.count("get")
	return s.Store.Get(ctx, keys, maxBytes)
}

// costly are requests that need more store calls than those of expensive, as a path and a body.
func costly() map[string][2]string {
	var events, parts []string
	for i := range 1000 {
		events = append(events, fmt.Sprintf(`{"id":"%d","type":"t","tags":["t%d"],"subject":"s%d"}`, i, i, i))
	}
	for i := range 100 {
		parts = append(parts, fmt.Sprintf(`{"category":"shop","stream":"p%d","events":[%s]}`, i, strings.Join(events[10*i:10*i+10], ",")))
	}
	tags := url.Values{"tag": {"fat"}}
	for i := range 15 {
		tags.Add("tag", fmt.Sprint("t", i))
	}
	return map[string][2]string{
		"PUT /v1/groups/{group}/offsets":                         {"/v1/groups/other/offsets", `{"offsets":[{"topic":"wide","timestamp":5}]}`},
		"POST /v1/groups/{group}/members":                        {"/v1/groups/all/members", `{"topics":["wide"]}`},
		"POST /v1/queues/{queue}/dead/redrive":                   {"/v1/queues/poor/dead/redrive", `{"all":true}`},
		"POST /v1/queues/{queue}/dead/discard":                   {"/v1/queues/poor/dead/discard", `{"all":true}`},
		"POST /v1/queues/{queue}/purge":                          {"/v1/queues/q0/purge", ""},
		"DELETE /v1/queues/{queue}":                              {"/v1/queues/poor", ""},
		"GET /v1/queues/{queue} with many partitions":            {"/v1/queues/broad", ""},
		"GET /v1/queues/{queue}/messages/{message} of many":      {"/v1/queues/broad/messages/0-0", ""},
		"DELETE /v1/acls":                                        {"/v1/acls?principal=User:many", ""},
		"DELETE /v1/topics/{topic}":                              {"/v1/topics/wide", ""},
		"POST /v1/categories/{category}/streams/{stream}/events": {"/v1/categories/shop/streams/s/events", `{"events":[` + strings.Join(events, ",") + `]}`},
		"POST /v1/categories/append":                             {"-", `{"streams":[` + strings.Join(parts, ",") + `]}`},
		"GET /v1/categories/{category}/events":                   {"/v1/categories/shop/events?" + tags.Encode(), ""},
		"POST /v1/categories/append again":                       {"/v1/categories/append", `{"streams":[` + strings.Join(parts, ",") + `]}`},
		"DELETE /v1/categories/{category}/streams/{stream}":      {"/v1/categories/shop/streams/fat", ""},
		"GET /v1/categories/{category}/streams/{stream}/events":  {"/v1/categories/shop/streams/fat/events", ""},
		"POST /v1/topics/{topic}/batch with one that is refused": {"/v1/topics/fat/batch?partial=true", `{"events":` + strings.TrimSuffix(many(500, `{"value":"v"}`), "]") + `,{"value":"` + strings.Repeat("x", 1100<<10) + `"}]}`},
	}
}

// others are requests beside the first one of their routes.
var others = []string{"GET /v1/queues/{queue} with many partitions", "GET /v1/queues/{queue}/messages/{message} of many", "POST /v1/categories/append again", "POST /v1/topics/{topic}/batch with one that is refused"}

// last are the routes that take away what requests of others need.
var last = []string{"POST /v1/queues/{queue}/dead/redrive", "POST /v1/queues/{queue}/dead/discard", "POST /v1/queues/{queue}/purge", "DELETE /v1/queues/{queue}", "DELETE /v1/categories/{category}/streams/{stream}", "DELETE /v1/topics/{topic}"}

// callsMost is how many store calls a request makes at most, whatever it asks for.
const callsMost = 32

// A request of each route, at its most expensive, makes a bounded number of store calls: none makes
// a call for each thing that it names.
func TestNoRequestMakesACallForEachThingItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.New(), calls: make(map[string]int)}
		at := newPipes()
		log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: slog.New(slog.DiscardHandler), Poll: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- log.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		}()
		cfg := managingIn(log)
		cfg.Insecure = true // connections in memory come from no address
		d := openAt(t, store, cfg, at, at.dial)
		defer d.stop()
		requests, administrator := expensive(d.wealthy()), ""
		maps.Copy(requests, costly())
		var patterns []string
		for _, pattern := range httpapi.Routes() {
			pattern, _, _ = strings.Cut(pattern, "?")
			if !slices.Contains(last, pattern) {
				patterns = append(patterns, pattern)
			}
		}
		for _, pattern := range slices.Concat(patterns, follows, others, last) {
			r, there := requests[pattern]
			if !there {
				t.Errorf("%s: which is its most expensive request?", pattern)
				continue
			}
			method, path, _ := strings.Cut(pattern, " ")
			if r[0] != "-" {
				path = r[0]
			}
			if administrator == "" && manages(pattern) {
				administrator = d.administrator(cfg)
			}
			c, err := d.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			store.take()
			answered := make(chan string, 1)
			go func() {
				fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sAccept: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, administrator, accepts(pattern), len(r[1]), r[1])
				first := make([]byte, 64)
				n, _ := c.Read(first)
				answered <- string(first[:n])
			}()
			line := <-answered
			n, kinds := store.take()
			c.Close()
			synctest.Wait()
			line, _, _ = strings.Cut(line, "\r")
			if n > callsMost {
				t.Errorf("%s: %d store calls, want %d at most:%s", pattern, n, callsMost, kinds)
			}
			if strings.HasPrefix(line, "HTTP/1.1 5") || strings.HasPrefix(line, "HTTP/1.1 401") || line == "" {
				t.Errorf("%s: answered %q", pattern, line)
			}
		}
	})
}
