package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// troubled is a store whose commits and reads end with an error, while there is one.
type troubled struct {
	eventlog.Store
	commit, read atomic.Pointer[error]
}

func (s *troubled) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := s.commit.Load(); err != nil {
		return nil, *err
	}
	return s.Store.Commit(ctx, flush)
}

func (s *troubled) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := s.read.Load(); err != nil {
		return nil, *err
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

// What may have happened is never told as what did not happen, nor the other way round.
func TestOutcomesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &troubled{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 2)
		publish := func(headers ...string) answer {
			return d.do("POST", "/v1/topics/orders/events?partition=0", "a", headers...)
		}
		batch := func(query string) answer {
			return d.asJSON("POST", "/v1/topics/orders/batch"+query, `{"events":[{"value":1,"partition":0},{"value":2,"partition":1}]}`)
		}
		for name, c := range map[string]struct {
			err     error
			status  int
			kind    string
			applied string
		}{
			"unknown":     {fmt.Errorf("%w: password=secret", eventlog.ErrUnsure), 500, "outcome_unknown", ""},
			"certain not": {fmt.Errorf("%w: password=secret", eventlog.ErrUnavailable), 503, "unavailable", "no"},
		} {
			store.commit.Store(&c.err)
			for what, got := range map[string]answer{"one": publish(), "under a key": publish("Idempotency-Key: k-" + c.kind), "a batch": batch(""), "each of a batch": batch("?partial=true"),
				"a topic":  d.asJSON("POST", "/v1/topics", `{"name":"new"}`),
				"offsets":  d.asJSON("PUT", "/v1/groups/g/offsets", `{"offsets":[{"topic":"orders","offset":"latest"}]}`),
				"a member": d.asJSON("POST", "/v1/groups/g/members", `{"topics":["orders"]}`),
			} {
				if got.status != c.status || got.header.Get("Weir-Applied") != c.applied || strings.Contains(got.body, "secret") {
					t.Errorf("%s, %s: %d %v %s", name, what, got.status, got.header, got.body)
				}
				got.refused(c.status, c.kind)
			}
			store.commit.Store(nil)
			time.Sleep(10 * time.Second) // the log tries again in its own time
		}
		if got := publish(); got.status != 200 {
			t.Errorf("afterwards: %d %s", got.status, got.body)
		}
	})
}

// faltering is a store that takes so many commits, and is away then.
type faltering struct {
	eventlog.Store
	left atomic.Int64
}

func (s *faltering) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if s.left.Add(-1) < 0 {
		return nil, fmt.Errorf("%w: connection refused", eventlog.ErrUnavailable)
	}
	return s.Store.Commit(ctx, flush)
}

// Wherever the store goes away while a topic is changed or deleted: who is told that nothing
// happened can rely on it.
func TestWhatDidNotHappenToATopicDidNotHappen(t *testing.T) {
	for commits := range int64(4) {
		synctest.Test(t, func(t *testing.T) {
			store := &faltering{Store: memory.New()}
			store.left.Store(2) // the first epoch, and the topic
			l := newPipes()
			d := openAt(t, store, httpapi.Config{}, l, l.dial)
			defer d.stop()
			d.topic("orders", 2)
			look := func() (text string) {
				for _, topic := range d.log.Topics() {
					text += fmt.Sprint(topic.Name, len(topic.Partitions), topic.Config)
				}
				return text
			}
			for _, try := range []struct{ method, body string }{
				{"PATCH", `{"config":{"retention.ms":60000},"partitions":3}`},
				{"PATCH", `{"config":{"retention.ms":70000},"partitions":1}`},
				{"DELETE", ""},
			} {
				before := look()
				store.left.Store(commits)
				got := d.asJSON(try.method, "/v1/topics/orders", try.body)
				store.left.Store(1000)
				time.Sleep(10 * time.Second) // the log tries again in its own time
				nothing := got.status >= 400 && got.status < 500 || got.header.Get("Weir-Applied") == "no"
				if now := look(); nothing != (now == before) {
					t.Errorf("%s with %d commits: %d, Weir-Applied %q, and %s became %s", try.method, commits, got.status, got.header.Get("Weir-Applied"), before, now)
				}
			}
		})
	}
}

func TestReadingWithoutTheStore(t *testing.T) {
	store := &troubled{Store: memory.New()}
	d := openOn(t, store, httpapi.Config{})
	d.topic("orders", 1)
	d.do("POST", "/v1/topics/orders/events?timestamp=1", "a")
	away := fmt.Errorf("%w: connection refused", eventlog.ErrUnavailable)
	store.read.Store(&away)
	d.get("/v1/topics/orders/partitions/0/events?offset=0").want(200,
		`{"events":[{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"a"}],"next_offset":1,"first_offset":0,"end_offset":1}`) // from memory
	d.get("/v1/topics/orders").refused(503, "unavailable")
	strange := errors.New("the disk says: password=secret")
	store.read.Store(&strange)
	got := d.get("/v1/topics/orders").refused(500, "internal")
	if strings.Contains(got.body, "secret") || !strings.Contains(d.said.String(), "password=secret") || !strings.Contains(d.said.String(), got.header.Get("X-Request-Id")) {
		t.Errorf("the client is told %s\nthe log says %s", got.body, d.said)
	}
}

// slow is a store whose next commit takes a while.
type slow struct {
	eventlog.Store
	took atomic.Int64 // nanoseconds; once, by the first commit of records: what weir writes for itself is no request's
}

func (s *slow) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if slices.ContainsFunc(flush, func(e eventlog.Entry) bool { return len(e.Batches) > 0 }) {
		time.Sleep(time.Duration(s.took.Swap(0)))
	}
	return s.Store.Commit(ctx, flush)
}

// When the time of a request is up no more of its events are sent, and those are told as what did
// not happen.
func TestEventsThatWereNotSentAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		const n, first = 9_999, 4_999             // too large together: as records they are larger than the body
		store.took.Store(int64(25 * time.Second)) // longer than a request waits
		event := `{"value":"` + strings.Repeat("v", 1650) + `"}` + "\n"
		got := d.do("POST", "/v1/topics/orders/batch?partial=true", strings.Repeat(event, n)+`{"value":1,"partition":7}`, "Content-Type: application/x-ndjson")
		var each struct{ Events []struct{ Status int } }
		got.decode(&each)
		count := map[int]int{}
		for _, e := range each.Events {
			count[e.Status]++
		}
		if count[404] != 1 || count[500] != first || count[503] != n-first || strings.Count(got.body, "ran out of time before") != n-first ||
			strings.Count(got.body, "urn:weir:problem:overloaded") != n-first {
			t.Errorf("by status: %v, in %.1000s", count, got.body)
		}
		time.Sleep(time.Minute)
		if end := d.end("orders", 0); end != first {
			t.Errorf("the log holds %d records, want the %d that were on their way", end, first)
		}
	})
}

// Events that are refused by themselves do not keep the others of a request from being stored
// together, in their order.
func TestTheEventsThatAreNotRefusedAreStoredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.New(), calls: make(map[string]int)}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		synctest.Wait() // what the log and its uses do when they start is done
		store.take()
		large := strings.Repeat("x", 1100<<10)
		got := d.asJSON("POST", "/v1/topics/orders/batch?partial=true", `{"events":[{"value":"a"},{"value":"`+large+`"},{"value":"b"},{"valu":1},{"value":2,"partition":7},{"value":"c"}]}`)
		var each struct {
			Events []struct{ Status, Offset int }
		}
		got.decode(&each)
		var told []string
		for _, e := range each.Events {
			told = append(told, fmt.Sprint(e.Status, "@", e.Offset))
		}
		if want := "200@0 413@0 200@1 400@0 404@0 200@2"; strings.Join(told, " ") != want {
			t.Errorf("%v, want %v", told, want)
		}
		if n, kinds := store.take(); n != 1 {
			t.Errorf("%d store calls, want 1:%s", n, kinds)
		}
		d.asJSON("POST", "/v1/topics/nowhere/batch?partial=true", `{"events":`+many(1000, `{"value":1}`)+`}`)
		if n, kinds := store.take(); n > 4 {
			t.Errorf("%d store calls for a topic that does not exist, want 4 at most:%s", n, kinds)
		}
	})
}

// hung is a store that does not answer, while shut.
type hung struct {
	eventlog.Store
	shut atomic.Bool
}

func (s *hung) wait(ctx context.Context) error {
	if !s.shut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *hung) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *hung) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *hung) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

// Whose time is over, while the store answers others, hears that weir is overloaded and that
// nothing happened, and not that the store cannot be reached.
func TestTheEndOfARequestsTimeIsToldAsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hung{Store: memory.New()} // what it is asked to read hangs, while the log's polls are answered
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		defer store.shut.Store(false)
		d.topic("orders", 1)
		time.Sleep(time.Second) // the log has read what changed
		store.shut.Store(true)
		for ask, body := range map[string]string{
			"GET /v1/topics/unheard":                       "",
			"GET /v1/groups/g/offsets":                     "",
			"GET /v1/categories/unheard/streams/s/events":  "",
			"PATCH /v1/topics/orders":                      `{"config":{"retention.ms":"1000"}}`,
			"POST /v1/topics/unheard/events":               "v",
			"POST /v1/topics/unheard/batch?partial=true":   `{"events":[{"value":"v"}]}`,
			"DELETE /v1/topics/orders":                     "",
			"PUT /v1/groups/g/offsets":                     `{"offsets":[{"topic":"orders","partition":0,"offset":0}]}`,
			"POST /v1/groups/g/members":                    `{"topics":["orders"]}`,
			"POST /v1/topics":                              `{"name":"new"}`,
			"POST /v1/categories":                          `{"name":"new"}`,
			"POST /v1/queues":                              `{"name":"new"}`,
			"POST /v1/queues/unheard/claim":                `{}`,
			"POST /v1/queues/unheard/messages":             `{"messages":[{"value":"v"}]}`,
			"GET /v1/queues/unheard":                       "",
			"POST /v1/categories/append":                   `{"streams":[{"category":"unheard","stream":"s","events":[{"id":"1","type":"t"}]}]}`,
			"GET /v1/categories/unheard/events?tag=t":      "",
			"POST /v1/categories/unheard/streams/s/events": `{"events":[{"id":"1","type":"t"}]}`,
		} {
			method, path, _ := strings.Cut(ask, " ")
			got := d.asJSON(method, path, body).refused(503, "overloaded", "while the store answered other requests. Nothing happened")
			if got.status != 503 || got.header.Get("Weir-Applied") != "no" {
				t.Errorf("%s: %d %v", ask, got.status, got.header)
			}
		}
	})
}

// A store that does not answer has 20 s, whatever is asked of it.
func TestNobodyWaitsLongForTheStore(t *testing.T) {
	for _, ask := range []string{
		"GET /v1/topics/orders", "GET /v1/topics/unheard",
		"GET /v1/topics/orders/events", "GET /v1/topics/orders/events?from=earliest", "GET /v1/topics/orders/events?from=0:0", "GET /v1/topics/unheard/events",
		"GET /v1/topics/orders/partitions/0/events", "GET /v1/topics/orders/partitions/0/events?offset=earliest", "GET /v1/topics/orders/partitions/0/events?offset=latest",
		"GET /v1/topics/unheard/partitions/0/events?offset=0",
		"GET /v1/groups/g/offsets", "PUT /v1/groups/g/offsets", "POST /v1/groups/g/members", "PATCH /v1/topics/orders", "DELETE /v1/topics/orders",
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &hung{Store: memory.New()}
			l := newPipes()
			d := openAt(t, store, httpapi.Config{}, l, l.dial)
			defer d.stop()
			defer store.shut.Store(false)
			d.topic("orders", 1)
			store.shut.Store(true)
			method, path, _ := strings.Cut(ask, " ")
			body := map[string]string{"PUT": `{"offsets":[{"topic":"orders","offset":"latest"}]}`, "POST": `{"topics":["orders"]}`, "PATCH": `{"partitions":2}`}[method]
			began := time.Now()
			got := d.asJSON(method, path, body)
			if took := time.Since(began); took > 20*time.Second || got.status < 500 || method == "GET" && got.status != 503 {
				t.Errorf("%s: %d after %v: %s", ask, got.status, took, got.body)
			}
		})
	}
}

// Queues take no Idempotency-Key: whoever does not know what happened is told what may be sent
// again there.
func TestAnUnknownOutcomeOfAQueueSaysWhatMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &troubled{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.queue("mail", `"unique":true`)
		const at = "/v1/queues/mail"
		for range 8 {
			d.do("POST", at+"/messages", "a")
		}
		var got struct{ Messages []struct{ Receipt string } }
		d.asJSON("POST", at+"/claim", `{"max":4,"lease_ms":3600000}`).into(200, &got)
		receipt := func(i int) string { return fmt.Sprintf(`{"receipts":[%q]}`, got.Messages[i].Receipt) }
		unsure := fmt.Errorf("%w: password=secret", eventlog.ErrUnsure)
		for _, c := range []struct{ path, body, says string }{
			{"/messages", `"c"`, "may be there twice"},
			{"/batch", `{"messages":[{"value":1,"unique":"u"},{"value":2}]}`, "may be there twice"},
			{"/batch", `{"messages":[{"value":1,"unique":"u"},{"value":2}]}`, "only if a worker has finished them meanwhile"},
			{"/batch", `{"messages":[{"value":1,"unique":"u"}]}`, "Enqueue them again"},
			{"/batch", `{"messages":[{"value":1,"unique":"u"}]}`, "unless a worker has finished it meanwhile"},
			{"/claim", `{"id":"mine"}`, "Claim again with the same id"},
			{"/claim", `{}`, "If you give each claim an `id`"},
			{"/claim", fmt.Sprintf(`{"ack":[%q]}`, got.Messages[0].Receipt), "Send the same receipts again"},
			{"/ack", receipt(1), "Send the same receipts again"},
			{"/nack", receipt(2), "Send the same receipts again"},
			{"/extend", receipt(3), "Send the same receipts again"},
		} {
			store.commit.Store(&unsure)
			got := d.asJSON("POST", at+c.path, c.body)
			if !strings.Contains(got.body, c.says) || !strings.Contains(got.body, "outcome_unknown") {
				t.Errorf("%s %s: %d %s, want %q", c.path, c.body, got.status, got.body, c.says)
			}
			if strings.Contains(got.body, "Idempotency-Key") || strings.Contains(got.body, "secret") || got.header.Get("Weir-Applied") != "" {
				t.Errorf("%s %s: %v %s", c.path, c.body, got.header, got.body)
			}
			store.commit.Store(nil)
			time.Sleep(10 * time.Second) // the log tries again in its own time
		}
	})
}

// Wherever the store goes away while a queue is created, altered or purged: who is told that
// nothing happened can rely on it.
func TestWhatDidNotHappenToAQueueDidNotHappen(t *testing.T) {
	for commits := range int64(8) {
		synctest.Test(t, func(t *testing.T) {
			store := &faltering{Store: memory.New()}
			store.left.Store(1000)
			l := newPipes()
			d := openAt(t, store, httpapi.Config{}, l, l.dial)
			defer d.stop()
			if got := d.asJSON("POST", "/v1/queues", `{"name":"other"}`); got.status != 201 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if got := d.do("DELETE", "/v1/topics/other.dlt", ""); got.status != 204 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			look := func() string {
				if err := d.log.RefreshTopics(t.Context()); err != nil {
					t.Error(err)
				}
				text := d.get("/v1/queues").body
				for _, topic := range d.log.Topics() {
					text += topic.Name + " "
				}
				return text
			}
			for _, try := range []struct{ method, path, body string }{
				{"POST", "/v1/queues", `{"name":"mail","settings":{"keep_done":true,"priorities":2}}`},
				{"PATCH", "/v1/queues/other", `{"settings":{"keep_done":true,"priorities":2}}`},
				{"POST", "/v1/queues/other/purge", ""},
			} {
				before := look()
				store.left.Store(commits)
				got := d.asJSON(try.method, try.path, try.body)
				store.left.Store(1000)
				time.Sleep(10 * time.Second) // the log tries again in its own time
				if nothing, now := got.header.Get("Weir-Applied") == "no", look(); nothing != (now == before) {
					t.Errorf("%s with %d commits: %d, Weir-Applied %q, and %s became %s", try.method, commits, got.status, got.header.Get("Weir-Applied"), before, now)
				}
			}
		})
	}
}

// Wherever the store goes away while a category is created: who is told that nothing happened can
// rely on it, and who is told that the outcome is unknown has a category after a retry.
func TestACategoryOfWhichOnlyTheTopicWasCreatedIsCompletedByARetry(t *testing.T) {
	unknown := 0
	for commits := range int64(3) {
		synctest.Test(t, func(t *testing.T) {
			store := &faltering{Store: memory.New()}
			store.left.Store(1000)
			l := newPipes()
			d := openAt(t, store, httpapi.Config{}, l, l.dial)
			defer d.stop()
			d.topic("other", 1)
			store.left.Store(commits)
			got := d.asJSON("POST", "/v1/categories", `{"name":"accounts"}`)
			store.left.Store(1000)
			time.Sleep(10 * time.Second) // the log tries again in its own time
			if err := d.log.RefreshTopics(t.Context()); err != nil {
				t.Error(err)
			}
			_, err := d.log.Topic(t.Context(), "accounts")
			if nothing := got.header.Get("Weir-Applied") == "no"; nothing != (err != nil) {
				t.Errorf("with %d commits: %d, Weir-Applied %q, and the topic: %v", commits, got.status, got.header.Get("Weir-Applied"), err)
			}
			if got.status == 201 {
				return
			}
			if got.status == 500 {
				unknown++
				if got.refused(500, "outcome_unknown", "send the request again"); d.get("/v1/categories/accounts").status != 404 {
					t.Errorf("with %d commits there is a category", commits)
				}
			}
			if got := d.asJSON("POST", "/v1/categories", `{"name":"accounts"}`); got.status != 201 {
				t.Errorf("with %d commits, again: %d %s", commits, got.status, got.body)
			}
		})
	}
	if unknown == 0 {
		t.Error("no outcome was unknown")
	}
}
