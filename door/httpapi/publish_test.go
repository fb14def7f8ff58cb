package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

func TestEventIsPublishedAndRead(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 2)
		d.do("POST", "/v1/topics/orders/events?partition=1&timestamp=1700000000000", "hello\n",
			"Weir-Key: customer-7", "Weir-Header: source=web", "Weir-Header: source=a=b").want(200, `{"partition":1,"offset":0}`)
		d.do("POST", "/v1/topics/orders/events?partition=1&timestamp=1700000000001&key_b64=/w==", "\xff\x00").want(200, `{"partition":1,"offset":1}`)
		d.do("POST", "/v1/topics/orders/events?partition=1&timestamp=1700000000002&key=&tombstone=true", "").want(200, `{"partition":1,"offset":2}`)
		d.do("POST", "/v1/topics/orders/events?partition=1&timestamp=1700000000003", "").want(200, `{"partition":1,"offset":3}`)
		d.get("/v1/topics/orders/partitions/1/events").want(200, `{"events":[
			{"partition":1,"offset":0,"timestamp":1700000000000,"key":"customer-7","value":"hello\n","headers":[{"name":"source","value":"web"},{"name":"source","value":"a=b"}]},
			{"partition":1,"offset":1,"timestamp":1700000000001,"key_b64":"/w==","value_b64":"/wA="},
			{"partition":1,"offset":2,"timestamp":1700000000002,"key":"","value":null},
			{"partition":1,"offset":3,"timestamp":1700000000003,"key":null,"value":""}
			],"next_offset":4,"first_offset":0,"end_offset":4}`)
	})
}

func TestBatchIsPublishedAsOne(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 3)
		d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[
			{"value":"text","partition":0,"timestamp":1},
			{"value":{"id": 9007199254740993, "price":1.50},"partition":1,"timestamp":2,"key_b64":"AAE=","headers":{"a":"b","none":null}},
			{"value_b64":"gA==","partition":2,"timestamp":3,"headers":[{"name":"a","value":"1"},{"name":"a","value_b64":"/w=="}]},
			{"value":null,"key":"k","partition":0,"timestamp":4}]}`).
			want(200, `{"events":[{"partition":0,"offset":0},{"partition":1,"offset":0},{"partition":2,"offset":0},{"partition":0,"offset":1}]}`)
		d.get("/v1/topics/orders/partitions/0/events", "Accept: application/x-ndjson").want(200,
			`{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"text"}`+"\n"+
				`{"partition":0,"offset":1,"timestamp":4,"key":"k","value":null}`+"\n")
		d.get("/v1/topics/orders/partitions/1/events").want(200, `{"events":[{"partition":1,"offset":0,"timestamp":2,"key":"\u0000\u0001",
			"value":"{\"id\": 9007199254740993, \"price\":1.50}","headers":[{"name":"a","value":"b"},{"name":"none","value":null}]}],
			"next_offset":1,"first_offset":0,"end_offset":1}`)
		d.get("/v1/topics/orders/partitions/2/events").want(200, `{"events":[{"partition":2,"offset":0,"timestamp":3,"key":null,
			"value_b64":"gA==","headers":[{"name":"a","value":"1"},{"name":"a","value_b64":"/w=="}]}],"next_offset":1,"first_offset":0,"end_offset":1}`)
	})
}

func TestLinesArePublishedAsOneBatch(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const ndjson = "Content-Type: application/x-ndjson"
	d.do("POST", "/v1/topics/orders/batch", "{\"value\":\"a\"}\r\n\n{\"value\":\"b\"}", ndjson).
		want(200, `{"events":[{"partition":0,"offset":0},{"partition":0,"offset":1}]}`)
	d.do("POST", "/v1/topics/orders/batch", "{\"value\":\"a\"}\n{\"value\":}\n", ndjson).refused(400, "invalid_json", "line 2, column 10")
	d.do("POST", "/v1/topics/orders/batch", "\n\n", ndjson).refused(400, "invalid_request")
	if n := d.end("orders", 0); n != 2 {
		t.Errorf("the log holds %d records, want 2", n)
	}
}

// H15: one bad item fails the batch; only who asks for it gets an answer for each.
func TestBatchWithABadEvent(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const batch = `{"events":[{"value":"a"},{"valu":"b"},{"value":"c","partition":7},{"value":"d"}]}`
	d.asJSON("POST", "/v1/topics/orders/batch", batch).refused(400, "invalid_json", `"pointer":"/events/1/valu"`, "did you mean value?")
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
	got := d.asJSON("POST", "/v1/topics/orders/batch?partial=true", batch)
	for _, part := range []string{`{"events":[{"status":200,"partition":0,"offset":0},{"status":400,"problem":{`, `{"status":200,"partition":0,"offset":1}]}`} {
		if got.status != 207 || !strings.Contains(got.body, part) {
			t.Errorf("%d %s\nlacks %s", got.status, got.body, part)
		}
	}
	if n := d.end("orders", 0); n != 2 {
		t.Errorf("the log holds %d records, want 2", n)
	}
	d.asJSON("POST", "/v1/topics/orders/batch?partial=true", batch, "Idempotency-Key: k").refused(400, "invalid_request", "cannot be used together")
}

// H11
func TestIdempotencyKeyMakesARepetitionHarmless(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 2)
		d.topic("others", 1)
		publish := func(path, body string) answer {
			return d.do("POST", "/v1/topics/"+path, body, "Idempotency-Key: 6f1c", "Content-Type: application/json")
		}
		first := publish("orders/events?key=k", "a").want(200, `{"partition":0,"offset":0}`)
		second := publish("orders/events?key=k", "a").want(200, first.body)
		if first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("headers of the first answer %v, of the second %v", first.header, second.header)
		}
		publish("orders/events?key=k", "b").refused(422, "key_reused")
		publish("orders/batch", `{"events":[{"value":"a"},{"value":"b"}]}`).refused(422, "key_reused")
		publish("others/events", "a").want(200, `{"partition":0,"offset":0}`) // another topic's keys
		for _, span := range []string{"1", "2"} {                             // who tries again does it in another span
			d.do("POST", "/v1/topics/others/events", "a", "Idempotency-Key: traced", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b"+span+"-01").
				want(200, `{"partition":0,"offset":1}`)
		}
		d.do("POST", "/v1/topics/others/events", "a", "Idempotency-Key: "+strings.Repeat("%", 255)).want(200, `{"partition":0,"offset":2}`)
		if n := d.end("orders", 0) + d.end("orders", 1); n != 1 {
			t.Errorf("the log holds %d records, want 1", n)
		}
		for _, key := range []string{"", "a b", strings.Repeat("k", 256), "é"} {
			d.do("POST", "/v1/topics/orders/events", "a", "Idempotency-Key: "+key).refused(400, "invalid_request", "Idempotency-Key")
		}
		again := func() string {
			return d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[{"value":"a","partition":0},{"value":"b","partition":1}]}`, "Idempotency-Key: batch").
				want(200, fmt.Sprintf(`{"events":[{"partition":0,"offset":1},{"partition":1,"offset":%d}]}`, 0)).header.Get("Idempotent-Replayed")
		}
		if again() != "" || again() != "true" {
			t.Error("a repeated batch is not known as one")
		}
	})
}

// H11: a repetition that comes while the first request is still at work waits for it, and gets its
// answer.
func TestRepetitionWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		publish := func() answer {
			return d.do("POST", "/v1/topics/orders/events", "a", "Idempotency-Key: k")
		}
		store.took.Store(int64(10 * time.Second))
		first, second := make(chan answer), make(chan answer)
		go func() { first <- publish() }()
		synctest.Wait()
		go func() { second <- publish() }()
		one, two := <-first, <-second
		one.want(200, `{"partition":0,"offset":0}`)
		two.want(200, one.body)
		if one.header.Get("Idempotent-Replayed") != "" || two.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("headers of the first answer %v, of the second %v", one.header, two.header)
		}
		if n := d.end("orders", 0); n != 1 {
			t.Errorf("the log holds %d records, want 1", n)
		}
	})
}

// hiding is a store that takes idempotency keys and does not show them, as if each were forgotten
// when it is looked for.
type hiding struct{ eventlog.Store }

func (h hiding) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "publish/") {
		return nil, nil
	}
	return h.Store.List(ctx, prefix, after, limit)
}

func (h hiding) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(keys[0], "publish/") {
		return []eventlog.KeyValue{{Key: keys[0]}}, nil
	}
	return h.Store.Get(ctx, keys, maxBytes)
}

// H11: where the first request's answer is not to be had, the repetition is refused for the moment,
// and publishes nothing.
func TestKeyThatOthersAreBusyWithIsInProgress(t *testing.T) {
	d := openOn(t, hiding{memory.New()}, httpapi.Config{})
	d.topic("orders", 1)
	publish := func() answer { return d.do("POST", "/v1/topics/orders/events", "a", "Idempotency-Key: k") }
	publish().want(200, `{"partition":0,"offset":0}`)
	if got := publish().refused(409, "in_progress", "Nothing was published"); got.header.Get("Retry-After") != "1" {
		t.Errorf("%v", got.header)
	}
	if n := d.end("orders", 0); n != 1 {
		t.Errorf("the log holds %d records, want 1", n)
	}
}

func TestTraceOfTheRequestGoesAlong(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	d.do("POST", "/v1/topics/orders/events?timestamp=1", "a", "Traceparent: "+parent, "Tracestate: x=1")
	d.do("POST", "/v1/topics/orders/events?timestamp=1", "a", "Traceparent: "+parent, "Weir-Header: traceparent=own")
	d.get("/v1/topics/orders/partitions/0/events").want(200, `{"events":[
		{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"a","headers":[{"name":"traceparent","value":"`+parent+`"},{"name":"tracestate","value":"x=1"}]},
		{"partition":0,"offset":1,"timestamp":1,"key":null,"value":"a","headers":[{"name":"traceparent","value":"own"}]}],
		"next_offset":2,"first_offset":0,"end_offset":2}`)

	half := "Tracestate: x=" + strings.Repeat("1", 300)
	d.do("POST", "/v1/topics/orders/events?timestamp=1", "a", "Traceparent: "+parent, half, half)
	d.get("/v1/topics/orders/partitions/0/events?offset=2").want(200, `{"events":[
		{"partition":0,"offset":2,"timestamp":1,"key":null,"value":"a","headers":[{"name":"traceparent","value":"`+parent+`"}]}],
		"next_offset":3,"first_offset":0,"end_offset":3}`)
}

func TestNothingIsPublishedWhereItDoesNotBelong(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.topic("__consumer_offsets", 1)
	for path, want := range map[string]string{
		"nowhere/events":                              "404 unknown_topic",
		"a%2Fb/events":                                "400 invalid_request",
		"__consumer_offsets/events":                   "400 invalid_request",
		"orders/events?partition=2":                   "404 unknown_partition",
		"orders/events?partition=-1":                  "400 invalid_request",
		"orders/events?partition=4294967297":          "400 invalid_request", // 1, if only 32 bits counted
		"orders/events?partitoin=1":                   "400 invalid_request",
		"orders/events?key=a&key=b":                   "400 invalid_request",
		"orders/events?key=%FF":                       "400 invalid_request",
		"orders/events?key=%zz":                       "400 invalid_request",
		"orders/events?key_b64=a":                     "400 invalid_request",
		"orders/events?key=a;b=c":                     "400 invalid_request",
		"orders/events?tombstone=1":                   "400 invalid_request",
		"orders/events?tombstone":                     "400 invalid_request", // the body is not empty
		"orders/events?timestamp=-1":                  "400 invalid_request",
		"orders/events?timestamp=253402300800000":     "400 invalid_request", // the year 10000
		"orders/events?timestamp=9223372036854775808": "400 invalid_request",
		"orders/events?key=a&key_b64=YQ==":            "400 invalid_request",
	} {
		got := d.do("POST", "/v1/topics/"+path, "value")
		status, kind, _ := strings.Cut(want, " ")
		if fmt.Sprint(got.status) != status {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		got.refused(got.status, kind)
	}
	d.do("POST", "/v1/topics/orders/events", "value", "Weir-Header: no-value").refused(400, "invalid_request", "name=value")
	d.do("POST", "/v1/topics/orders/events?key=a", "value", "Weir-Key: b").refused(400, "invalid_request", "given 2 times")
	if n := d.end("orders", 0) + d.end("orders", 1); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

func TestTooLargeAnEventIsRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 2<<20)).refused(http.StatusRequestEntityTooLarge, "too_large", "max.message.bytes")
	d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 17<<20)).refused(http.StatusRequestEntityTooLarge, "too_large", `"limit":16777216`)
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

// end is how many records a partition was given.
func (d *door) end(topic string, partition int) eventlog.Offset {
	d.t.Helper()
	t, err := d.log.Topic(d.t.Context(), topic)
	if err != nil {
		d.t.Fatal(err)
	}
	got, err := d.log.Bounds(d.t.Context(), t.Partitions[partition])
	if err != nil {
		d.t.Fatal(err)
	}
	return got[0].Bounds.Next
}

// gate is a store that takes commits when it is told to.
type gate struct {
	eventlog.Store
	open chan struct{}
}

func (g *gate) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	<-g.open
	return g.Store.Commit(ctx, flush)
}

// flushes counts what was flushed.
type flushes struct{ count, records atomic.Int64 }

func (f *flushes) Flushed(one eventlog.Flush) {
	f.count.Add(1)
	f.records.Add(one.Records)
}
func (*flushes) Fetched(int, bool)         {}
func (*flushes) StoreFailed(string, error) {}
func (*flushes) Retried()                  {}
func (*flushes) Delivered(time.Duration)   {}

// Single events of many clients share flushes: what comes while one travels goes with the next.
func TestSingleEventsOfManyClientsShareFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := &gate{memory.New(), make(chan struct{}, 1)}, new(flushes)
		store.open <- struct{}{} // for the first epoch
		l := newPipes()
		d := openSeen(t, store, httpapi.Config{}, seen, l, l.dial)
		defer d.stop()
		store.open <- struct{}{}
		d.topic("orders", 4)
		before, records := seen.count.Load(), seen.records.Load()
		const clients = 200
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				if got := d.do("POST", "/v1/topics/orders/events?key="+strconv.Itoa(i), "a"); got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		synctest.Wait() // all of them wait for the store
		close(store.open)
		all.Wait()
		if n, events := seen.count.Load()-before, seen.records.Load()-records; n > 2 || events != clients {
			t.Errorf("%d events of %d clients in %d flushes", events, clients, n)
		}
	})
}

// An Idempotency-Key belongs to the topic and not to its name.
func TestAnIdempotencyKeyGoesWithItsTopic(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	publish := func() answer { return d.do("POST", "/v1/topics/orders/events", "a", "Idempotency-Key: k1") }
	publish().want(200, `{"partition":0,"offset":0}`)
	d.do("DELETE", "/v1/topics/orders", "").want(204, "")
	publish().refused(404, "unknown_topic")
	d.topic("orders", 1)
	for _, replayed := range []string{"", "true"} {
		if got := publish().want(200, `{"partition":0,"offset":0}`); got.header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("in the new topic: replayed %q, want %q", got.header.Get("Idempotent-Replayed"), replayed)
		}
	}
	if end := d.end("orders", 0); end != 1 {
		t.Errorf("the new topic has %d events", end)
	}
}
