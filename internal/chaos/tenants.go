package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// judgeTenants sees M1 over HTTP, where keys are: with a key for topics, groups and queues whose
// names begin with "a." nothing is read, listed, changed or even known of what begins with "b.";
// /metrics is open to its own machine. M2, that none harms the other by its load, wants quotas. It
// is the last that is judged: from now on every request needs a key.
func (w *world) judgeTenants(ctx context.Context) error {
	const secret = "of the tenant b"
	b := w.brokers[0]
	for _, made := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/v1/topics", map[string]any{"name": "a.events", "partitions": 1}},
		{"POST", "/v1/topics", map[string]any{"name": "b.events", "partitions": 1}},
		{"POST", "/v1/queues", map[string]any{"name": "a.jobs"}},
		{"POST", "/v1/queues", map[string]any{"name": "b.jobs"}},
		{"POST", "/v1/queues/b.jobs/messages", []byte(secret)},
		{"PUT", "/v1/groups/b.group/offsets", map[string]any{"offsets": []any{map[string]any{"topic": "b.events", "offset": "earliest"}}}},
	} {
		if err := w.insist(ctx, made.method, made.path, made.body); err != nil {
			return err
		}
	}
	if _, err := w.publishAll(ctx, b, "b.events", 0, []string{secret}); err != nil {
		return err
	}
	out, exit := w.program(ctx, "key", "create", "a", "--store", w.url, "--access", "read", "--access", "write", "--topic", "a.", "--group", "a.", "--queue", "a.", "--output", "json")
	var key struct{ Secret string }
	if err := json.Unmarshal([]byte(out), &key); err != nil || exit != 0 || key.Secret == "" {
		return fmt.Errorf("make a key: exit %d, %s", exit, out)
	}
	header := http.Header{"Authorization": {"Bearer " + key.Secret}}
	for _, b := range w.brokers {
		if err := w.awaitKeys(ctx, b, header); err != nil {
			return err
		}
		for _, path := range []string{
			"GET /v1/topics", "GET /v1/topics/b.events", "GET /v1/topics/b.events/partitions/0/events?offset=0", "GET /v1/topics/b.events/events?from=earliest",
			"POST /v1/topics/b.events/events", "POST /v1/topics/b.events/batch", "DELETE /v1/topics/b.events", "PATCH /v1/topics/b.events",
			"GET /v1/groups", "GET /v1/groups/b.group", "GET /v1/groups/b.group/offsets", "PUT /v1/groups/b.group/offsets", "DELETE /v1/groups/b.group",
			"POST /v1/groups/b.group/members", "POST /v1/groups/a.group/members",
			"GET /v1/queues", "GET /v1/queues/b.jobs", "GET /v1/queues/b.jobs/messages", "POST /v1/queues/b.jobs/messages", "POST /v1/queues/b.jobs/claim",
			"GET /v1/queues/b.jobs/schedules", "POST /v1/queues/b.jobs/purge", "DELETE /v1/queues/b.jobs",
		} {
			w.judgeForeign(ctx, b, path, header, secret)
		}
	}
	return nil
}

// awaitKeys waits until a broker knows that there are keys.
func (w *world) awaitKeys(ctx context.Context, b *broker, header http.Header) error {
	for late := time.Now().Add(startMax); ; pause(ctx, 100*time.Millisecond) {
		_, open, _ := b.call(ctx, "GET", "/v1/topics", nil, nil)
		_, mine, err := b.call(ctx, "GET", "/v1/topics/a.events", nil, header)
		if open == judge.Refused && mine == judge.Done {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s does not know the key within %v: %w", b.name, startMax, err)
		}
	}
}

// judgeForeign sees that a request with the key of tenant a gets nothing of tenant b: a list leaves
// it out, anything else is refused.
func (w *world) judgeForeign(ctx context.Context, b *broker, path string, header http.Header, secret string) {
	method, at, _ := strings.Cut(path, " ")
	var body any
	switch {
	case strings.HasSuffix(at, "/members"):
		body = map[string]any{"topics": []string{"b.events"}}
	case strings.HasSuffix(at, "/events") && method == "POST", strings.HasSuffix(at, "/messages") && method == "POST":
		body = []byte("from a")
	case method == "POST" || method == "PUT" || method == "PATCH":
		body = map[string]any{}
	}
	answer, o, err := b.call(ctx, method, at, body, header)
	text := string(answer)
	if err != nil {
		text = err.Error()
	}
	list := !strings.Contains(at, "b.") && method == "GET"
	if !list && o != judge.Refused || list && strings.Contains(text, "b.") || strings.Contains(text, secret) {
		w.model.Broken("M1", nil, "with a key for a. %s at %s is answered %.500s", path, b.name, text)
	}
}
