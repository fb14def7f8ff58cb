package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// category makes a category.
func (d *door) category(name string) {
	d.t.Helper()
	if a := d.asJSON("POST", "/v1/categories", fmt.Sprintf(`{"name":%q,"partitions":1}`, name)); a.status != 201 || a.header.Get("Location") != "/v1/categories/"+name {
		d.t.Fatalf("create category %s: %d %s", name, a.status, a.body)
	}
}

// fill appends n events with values of so many bytes to a stream, a few at a time.
func (d *door) fill(category, name string, n, size int) {
	d.t.Helper()
	for n > 0 {
		some := min(n, max(1, 500<<10/size), 1000)
		body := `{"events":` + many(some, fmt.Sprintf(`{"type":"t","value":%q}`, strings.Repeat("v", size))) + `}`
		if a := d.append(category, name, body); a.status != 201 {
			d.t.Fatalf("%d %s", a.status, a.body)
		}
		n -= some
	}
}

func streamPath(category, name string) string {
	return "/v1/categories/" + category + "/streams/" + url.PathEscape(name)
}

func (d *door) append(category, name, body string, headers ...string) answer {
	d.t.Helper()
	return d.asJSON("POST", streamPath(category, name)+"/events", body, headers...)
}

// tagged sees that the answer has an ETag.
func (a answer) tagged(version string) answer {
	a.t.Helper()
	if got := a.header.Get("Etag"); got != `"`+version+`"` {
		a.t.Errorf("ETag %s, want version %s", got, version)
	}
	return a
}

type streamPage struct {
	Version, First int64
	Next           *int64
	Archived       bool
	Events         []struct {
		Version   int64
		ID, Type  string
		Subject   string
		Value     *string
		ValueB64  *string `json:"value_b64"`
		Erased    bool
		Tags      []string
		Metadata  []struct{ Name, Value string }
		Timestamp int64
	}
}

func (d *door) page(path string) (p streamPage) {
	d.t.Helper()
	d.get(path).into(200, &p)
	return p
}

func TestEventsAreAppendedAndRead(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.category("order")
		d.append("order", "a/b é", `{"events":[{"id":"1","type":"Placed","value":{"n":1.0},"subject":"ann","tags":["x"],"metadata":{"causation-id":"c"},"timestamp":5},
			{"id":"2","type":"Paid","value_b64":"/w=="}]}`, "If-None-Match: *").want(201, `{"first":0,"version":2}`).tagged("2")
		d.append("order", "a/b é", `{"events":[{"type":"Sent"}]}`, `If-Match: "2"`).want(201, `{"first":2,"version":3}`).tagged("3")
		p := d.page(streamPath("order", "a/b é") + "/events")
		d.get(streamPath("order", "a/b é") + "/events").tagged("3")
		if e := p.Events; len(e) != 3 || p.Version != 3 || p.Next != nil || e[0].ID != "1" || e[0].Type != "Placed" || *e[0].Value != `{"n":1.0}` || e[0].Subject != "ann" || e[0].Timestamp != 5 ||
			!slices.Equal(e[0].Tags, []string{"x"}) || e[0].Metadata[0].Name != "causation-id" || *e[1].ValueB64 != "/w==" || e[2].Version != 2 || *e[2].Value != "" {
			t.Errorf("%+v", p)
		}
		d.get("/v1/topics/order").into(200, &struct{}{}) // a category is a topic

		c, err := d.categories.Category(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ForgetSubject(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		if e := d.page(streamPath("order", "a/b é") + "/events").Events[0]; !e.Erased || e.Value != nil || e.ID != "1" {
			t.Errorf("of a forgotten subject: %+v", e)
		}
	})
}

func TestNobodyPublishesToACategoryNorMakesItAQueue(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	d.do("POST", "/v1/topics/order/events", "v", "Content-Type: text/plain").refused(400, "invalid_request", "only streams append to it")
	d.do("POST", "/v1/topics/order/batch", `{"value":"v"}`+"\n", "Content-Type: application/x-ndjson").refused(400, "invalid_request", "only streams append to it")
	d.asJSON("POST", "/v1/queues", `{"name":"order"}`).refused(400, "invalid_request", "only streams append to it")
	d.asJSON("POST", "/v1/queues", `{"name":"mail","topic":"order"}`).refused(400, "invalid_request", "only streams append to it")
	d.append("order", "s", `{"events":[{"type":"t"}]}`).want(201, `{"first":0,"version":1}`)
}

func TestWhatAnAppendExpects(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	const one = `{"events":[{"type":"t"}]}`
	d.append("order", "s", one, "If-Match: *").refused(412, "version_conflict", `"version":0`, `"exists":false`).tagged("0")
	d.append("order", "s", one, `If-Match: "1"`).refused(412, "version_conflict")
	d.append("order", "s", one, `If-Match: "0"`).want(201, `{"first":0,"version":1}`)
	d.append("order", "s", one, "If-None-Match: *").refused(412, "version_conflict", `"version":1`, `"exists":true`, "Nothing happened").tagged("1")
	d.append("order", "s", one, "If-Match: *").want(201, `{"first":1,"version":2}`)
	d.append("order", "s", one).want(201, `{"first":2,"version":3}`)
	d.append("order", "s", one, `If-Match: "2"`).refused(412, "version_conflict", `"version":3`).tagged("3")
	d.append("order", "s", one, `If-Match: "9223372036854775806"`).refused(412, "version_conflict", `"version":3`)
	for _, bad := range []string{`If-Match: 3`, `If-Match: "-1"`, `If-Match: "+3"`, `If-Match: W/"3"`, `If-Match: "3", "4"`, `If-Match: ""`, `If-Match: "`, "If-Match: ", `If-Match: "3.0"`, `If-Match: "9223372036854775807"`, `If-None-Match: "3"`} {
		d.append("order", "s", one, bad).refused(400, "invalid_request", "*")
	}
	d.append("order", "s", one, `If-Match: "3"`, "If-None-Match: *").refused(400, "invalid_request")
	d.append("order", "s", one, `If-Match: "3"`, `If-Match: "3"`).refused(400, "invalid_request")
	d.append("order", "s", one, "Idempotency-Key: k").refused(400, "invalid_request", "id")
	if p := d.page("/v1/categories/order/streams/s/events"); p.Version != 3 {
		t.Errorf("what was refused was appended: %+v", p)
	}
}

func TestARepeatedAppendIsADuplicate(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	for _, expect := range [][]string{{`If-Match: "0"`}, {"If-None-Match: *"}, nil} {
		name := fmt.Sprint("s", len(expect), expect)
		const two = `{"events":[{"id":"1","type":"t","value":"a"},{"id":"2","type":"t"}]}`
		parent := "traceparent: 00-%032x-0000000000000001-01"
		d.append("order", name, two, append(expect, fmt.Sprintf(parent, 1))...).want(201, `{"first":0,"version":2}`)
		d.append("order", name, `{"events":[{"type":"t"}]}`).want(201, `{"first":2,"version":3}`)
		d.append("order", name, two, append(expect, fmt.Sprintf(parent, 2))...).want(200, `{"first":0,"version":2,"duplicate":true}`).tagged("2")
		d.append("order", name, strings.Replace(two, `"a"`, `"b"`, 1), expect...).refused(422, "event_id_reused")
	}
	// Without an expected version the whole list of ids makes an append the same.
	d.append("order", "part", `{"events":[{"id":"1","type":"t","value":"a"},{"id":"2","type":"t"}]}`).want(201, `{"first":0,"version":2}`)
	d.append("order", "part", `{"events":[{"id":"1","type":"t","value":"b"}]}`).want(201, `{"first":2,"version":3}`)
	d.append("order", "part", `{"events":[{"id":"2","type":"t","value":"b"}]}`, `If-Match: "0"`).refused(412, "version_conflict")
	d.append("order", "twice", `{"events":[{"id":"1","type":"t"},{"id":"1","type":"t"}]}`).refused(400, "invalid_request", "same")
}

func TestEventsThatCannotBeAppended(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	for body, says := range map[string]string{
		`{}`:                                         `\"events\" is missing`,
		`{"events":[]}`:                              "no events",
		`{"events":[{}]}`:                            "type",
		`{"events":[{"type":""}]}`:                   "type",
		`{"events":[{"type":"weir.x"}]}`:             "reserved",
		`{"events":[{"typ":"t"}]}`:                   "did you mean type?",
		`{"events":[{"type":"t","id":""}]}`:          `"pointer":"/events/0/id"`,
		`{"events":[{"type":"t","subject":""}]}`:     `"pointer":"/events/0/subject"`,
		`{"events":[{"type":"t","subject":"a\nb"}]}`: "control",
		`{"events":[{"type":"t","value":1,"value_b64":"YQ=="}]}`:                 "give one of them",
		`{"events":[{"type":"t","timestamp":-1}]}`:                               `"pointer":"/events/0/timestamp"`,
		`{"events":[{"type":"t","metadata":{"weir.x":"y"}}]}`:                    "reserved",
		`{"events":[{"type":"t","id":"` + strings.Repeat("i", 129) + `"}]}`:      "at most 128",
		`{"events":[{"type":"` + strings.Repeat("t", 256) + `"}]}`:               "at most 255",
		`{"events":[{"type":"t","subject":"` + strings.Repeat("s", 256) + `"}]}`: "at most 255",
		`{"events":[{"type":"t","tags":["` + strings.Repeat("t", 256) + `"]}]}`:  "255",
		`{"events":[{"type":"t","tags":` + many(17, `"x"`) + `}]}`:               "16",
		"{\"events\":[{\"type\":\"\xff\"}]}":                                     "UTF-8",
	} {
		if got := d.append("order", "s", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%.200s: %d %.300s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	d.append("order", "s", `{"events":`+many(100_000, `{"type":"t"}`)+`}`).refused(413, "too_large", `"limit":10000`)
	d.append("order", "s", `{"events":[{"type":"t","value":"`+strings.Repeat("v", 20<<20)+`"}]}`).refused(413, "too_large")
	d.append("order", "s", `{"events":[{"type":"t","value":"`+strings.Repeat("v", 2<<20)+`"}]}`).refused(413, "too_large", "max.message.bytes")
	d.do("POST", "/v1/categories/order/streams/s/events", `{"events":[{"type":"t"}]}`, "Content-Type: text/plain").refused(415, "unsupported_media_type")
	d.append("none", "s", `{"events":[{"type":"t"}]}`).refused(404, "unknown_category", "POST /v1/categories")
	d.topic("plain", 1)
	d.append("plain", "s", `{"events":[{"type":"t"}]}`).refused(404, "unknown_category")
	d.get("/v1/categories/order/streams/s/events").refused(404, "unknown_stream")
}

func TestStreamsThatCannotBeNamed(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	const one = `{"events":[{"type":"t"}]}`
	for path, status := range map[string]int{
		"":                          404,
		strings.Repeat("n", 256):    400,
		"a%0Ab":                     400,
		"%FF":                       400,
		"a;b":                       404,
		"%00":                       400,
		"a/b":                       404,
		strings.Repeat("n", 20<<10): 400,
	} {
		if a := d.asJSON("POST", "/v1/categories/order/streams/"+path+"/events", one); a.status != status {
			t.Errorf("%.20s…: %d %.200s, want %d", path, a.status, a.body, status)
		}
	}
	if response, err := d.client.Get("http://" + d.addr + "/v1/categories/order/streams/" + strings.Repeat("n", 1<<20) + "/events"); err == nil {
		if response.Body.Close(); response.StatusCode != 431 {
			t.Errorf("a name of 1 MiB: %s", response.Status)
		}
	}
	for _, name := range []string{"a/b", "/a", "a/", "//", "..", ".", "a b+c%2F", "?x=1#y", "*", "/", ";", "a;b", strings.Repeat("é", 127) + "n"} {
		path := "/v1/categories/order/streams/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E") + "/events"
		d.asJSON("POST", path, one, "If-None-Match: *").want(201, `{"first":0,"version":1}`)
		if p := d.page(path); p.Version != 1 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	var list struct{ Streams []struct{ Stream string } }
	d.get("/v1/categories/order/streams").into(200, &list)
	if len(list.Streams) != 13 {
		t.Errorf("%+v", list)
	}
}

func TestAStreamIsReadInPages(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	var events []string
	for i := range 25 {
		events = append(events, fmt.Sprintf(`{"type":"t%d","timestamp":%d}`, i%2, i))
	}
	d.append("order", "s", `{"events":[`+strings.Join(events, ",")+`]}`)
	read := func(query string, backward bool) (got []int64, pages int) {
		t.Helper()
		for at := ""; ; {
			p := d.page("/v1/categories/order/streams/s/events?" + query + at)
			if pages++; pages > 100 {
				t.Fatal("it does not end")
			}
			for _, e := range p.Events {
				got = append(got, e.Version)
			}
			if p.Next == nil {
				return got, pages
			}
			if at = fmt.Sprint("&from=", *p.Next); backward {
				at = fmt.Sprint("&to=", *p.Next)
			}
		}
	}
	for query, want := range map[string]string{
		"max=10":                       "25 in 3 pages, from 0 to 24",
		"max=25":                       "25 in 1 pages, from 0 to 24",
		"max=99999":                    "25 in 1 pages, from 0 to 24",
		"max=10&backward=true":         "25 in 3 pages, from 24 to 0",
		"max=10&type=t1":               "12 in 2 pages, from 1 to 23",
		"max=10&until=11":              "12 in 2 pages, from 0 to 11",
		"max=100&backward=false&to=20": "20 in 1 pages, from 0 to 19",
	} {
		got, pages := read(query, strings.Contains(query, "backward=true"))
		if told := fmt.Sprintf("%d in %d pages, from %d to %d", len(got), pages, got[0], got[len(got)-1]); told != want {
			t.Errorf("%s: %s, want %s", query, told, want)
		}
	}
	for _, query := range []string{"from=25", "from=9223372036854775807", "type=other", "from=3&to=3"} {
		if p := d.page("/v1/categories/order/streams/s/events?" + query); len(p.Events) != 0 || p.Version != 25 || p.Next != nil {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, query := range []string{"from=-1", "from=9223372036854775808", "to=-1", "to=0", "to=9223372036854775808", "to=99999999999999999999", "from=4&to=3", "max=0", "max=-1", "until=-1", "until=now", "backward=yes", "from=1&from=2", "form=1"} {
		d.get("/v1/categories/order/streams/s/events?"+query).refused(400, "invalid_request")
	}
	d.get("/v1/categories/order/streams/none/events").refused(404, "unknown_stream")
	d.get("/v1/categories/none/streams/s/events").refused(404, "unknown_category")
}

// A page has memory for its events before they are read: where there is little, it is short, and
// goes on.
func TestPagesOfAStreamAreShortWhereMemoryIs(t *testing.T) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 1 << 20}))
	d.category("order")
	d.fill("order", "s", 20, 40<<10)
	p := d.page("/v1/categories/order/streams/s/events")
	if len(p.Events) == 0 || len(p.Events) >= 20 || p.Next == nil || *p.Next != int64(len(p.Events)) {
		t.Errorf("%d events", len(p.Events))
	}
}

func TestStreamsAreDeletedAndArchived(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	const at, one = "/v1/categories/order/streams/s", `{"events":[{"type":"t"}]}`
	for _, verb := range []string{"/archive", "/unarchive"} {
		d.do("POST", at+verb, "").refused(404, "unknown_stream")
		d.do("POST", "/v1/categories/none/streams/s"+verb, "").refused(404, "unknown_category")
		d.do("POST", at+verb, "x").refused(400, "invalid_request", "body")
	}
	d.append("order", "s", one)
	d.do("POST", at+"/archive", "", `If-Match: "0"`).refused(412, "version_conflict", `"version":1`)
	d.do("POST", at+"/archive", "", `If-Match: "1"`).want(204, "")
	d.do("POST", at+"/archive", "").want(204, "")
	d.append("order", "s", one).refused(409, "stream_archived", "unarchive")
	if p := d.page(at + "/events"); !p.Archived || len(p.Events) != 1 {
		t.Errorf("archived: %+v", p)
	}
	d.do("POST", at+"/unarchive", "", `If-Match: "1"`).refused(400, "invalid_request")
	d.do("POST", at+"/unarchive", "").want(204, "")
	d.append("order", "s", one).want(201, `{"first":1,"version":2}`)
	d.do("DELETE", at, "", `If-Match: "1"`).refused(412, "version_conflict", `"version":2`)
	d.do("DELETE", at, "", `If-Match: "2"`).want(204, "")
	d.do("DELETE", at, "").want(204, "")
	d.get(at+"/events").refused(404, "unknown_stream")
	d.do("DELETE", "/v1/categories/none/streams/s", "").refused(404, "unknown_category")
	var v struct {
		Streams []struct {
			Stream  string
			Version int64
			Exists  bool
		}
	}
	if d.get("/v1/categories/order/streams").into(200, &v); len(v.Streams) != 1 || v.Streams[0].Exists || v.Streams[0].Version != 2 {
		t.Errorf("a deleted stream is listed as %+v", v)
	}
	d.append("order", "s", one, "If-None-Match: *").want(201, `{"first":2,"version":3}`)
}

func TestSnapshotsAreKept(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	const at = "/v1/categories/order/streams/s/snapshot"
	d.get(at).refused(404, "unknown_snapshot")
	d.asJSON("PUT", at, `{"version":1,"value":"x"}`).refused(400, "invalid_request")
	d.append("order", "s", `{"events":[{"type":"t"},{"type":"t"},{"type":"t"}]}`)
	d.asJSON("PUT", at, `{"version":1,"value":{"n":1.0}}`).want(204, "")
	d.asJSON("PUT", at, `{"version":3,"value_b64":"/w=="}`).want(204, "")
	d.get(at).want(200, `{"version":3,"value_b64":"/w=="}`)
	d.get(at+"?at=3").want(200, `{"version":3,"value_b64":"/w=="}`)
	d.get(at+"?at=2").want(200, `{"version":1,"value":"{\"n\":1.0}"}`)
	d.get(at+"?at=0").refused(404, "unknown_snapshot")
	d.get(at+"?at=-1").refused(400, "invalid_request")
	d.asJSON("PUT", at, `{"version":4,"value":"x"}`).refused(400, "invalid_request", "version 4")
	for _, body := range []string{`{"value":"x"}`, `{"version":1}`, `{"version":-1,"value":"x"}`, `{"version":1,"value":"x","value_b64":"YQ=="}`, `[]`} {
		d.asJSON("PUT", at, body).refused(400, "invalid_json")
	}
	d.asJSON("PUT", at, `{"version":1,"value":"`+strings.Repeat("x", 2<<20)+`"}`).refused(413, "too_large", "max.message.bytes")
	d.get("/v1/categories/none/streams/s/snapshot").refused(404, "unknown_category")
	for _, header := range []string{`If-Match: "3"`, "If-None-Match: *", "Idempotency-Key: k"} {
		name, _, _ := strings.Cut(header, ":")
		d.asJSON("PUT", at, `{"version":2,"value":"x"}`, header).refused(400, "invalid_request", name)
	}
	d.get(at+"?at=2").want(200, `{"version":1,"value":"{\"n\":1.0}"}`)
}

func TestCategoriesAreCreatedAndListed(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.get("/v1/categories").want(200, `{"categories":[]}`)
	d.topic("plain", 1)
	var v struct {
		Name       string
		Partitions int
		Retention  struct {
			Events int64
			Age    int64 `json:"age_ms"`
		}
		Streams []struct{ Stream string }
		Next    string
	}
	d.asJSON("POST", "/v1/categories", `{"name":"order","config":{"max.message.bytes":2000000},"retention":{"events":5,"age_ms":1000}}`).into(201, &v)
	if v.Name != "order" || v.Partitions != 4 || v.Retention.Events != 5 || v.Retention.Age != 1000 {
		t.Errorf("%+v", v)
	}
	d.asJSON("POST", "/v1/categories", `{"name":"nulls","config":{"retention.ms":null,"max.message.bytes":null}}`).into(201, &struct{}{})
	if topic, err := d.log.Topic(t.Context(), "nulls"); err != nil || fmt.Sprint(topic.Config) != "map[retention.ms:-1]" {
		t.Errorf("of settings that are null: %v, %v", topic.Config, err)
	}
	d.do("DELETE", "/v1/topics/nulls", "").want(204, "")
	d.asJSON("POST", "/v1/categories", `{"name":"order"}`).refused(409, "category_exists")
	d.asJSON("POST", "/v1/categories", `{"name":"plain"}`).refused(409, "category_exists")
	for body, says := range map[string]string{
		`{}`: `\"name\" is missing`, `{"name":"a/b"}`: "invalid", `{"name":"a","partitions":0}`: `"pointer":"/partitions"`, `{"name":"a","retention":{"events":-1}}`: `"pointer":"/retention/events"`,
		`{"name":"a","retention":{"age":1}}`: "allowed are events, age_ms", `{"name":"a","config":{"retention.ms":"x"}}`: `"pointer":"/config/retention.ms"`, `{"name":"__weir_x"}`: "weir",
	} {
		if got := d.asJSON("POST", "/v1/categories", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	d.get("/v1/categories").want(200, `{"categories":["order"]}`)
	for i := range 5 {
		d.append("order", fmt.Sprint("a/", i), `{"events":[{"type":"t"}]}`)
	}
	d.append("order", "b", `{"events":[{"type":"t"}]}`)
	var names []string
	for after := ""; ; after = v.Next {
		v.Next, v.Streams = "", nil
		d.get("/v1/categories/order/streams?max=2&prefix=a%2F&after="+url.QueryEscape(after)).into(200, &v)
		for _, s := range v.Streams {
			names = append(names, s.Stream)
		}
		if v.Next == "" || len(names) > 10 {
			break
		}
	}
	if !slices.Equal(names, []string{"a/0", "a/1", "a/2", "a/3", "a/4"}) {
		t.Errorf("listed: %v", names)
	}
	d.get("/v1/categories/order/streams?max=0").refused(400, "invalid_request")
	d.get("/v1/categories/none").refused(404, "unknown_category")
	d.get("/v1/categories/plain").refused(404, "unknown_category")
	d.do("DELETE", "/v1/topics/order", "").want(204, "")
	d.get("/v1/categories/order").refused(404, "unknown_category")
}

// An append whose answer was lost is resolved by appending it again, whether it had happened or
// not.
func TestAnAppendWithoutAnAnswerIsResolvedByItsIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{troubled: troubled{Store: memory.New()}}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.category("order")
		const two = `{"events":[{"id":"1","type":"t"},{"id":"2","type":"t"}]}`
		away := fmt.Errorf("%w: password=secret", eventlog.ErrUnavailable)
		store.commit.Store(&away)
		if got := d.append("order", "s", two).refused(503, "unavailable", "Nothing happened"); got.header.Get("Weir-Applied") != "no" {
			t.Errorf("%v", got.header)
		}
		store.commit.Store(nil) // the log had withdrawn it
		d.append("order", "s", two).want(201, `{"first":0,"version":2}`)
		unsure := fmt.Errorf("%w: password=secret", eventlog.ErrUnsure)
		for name, happened := range map[string]bool{"happened": true, "lost": false} {
			for _, expect := range [][]string{{`If-Match: "0"`}, {"If-None-Match: *"}, {"If-Match: *"}, nil} {
				stream := fmt.Sprint(name, expect)
				begun := 0
				if len(expect) > 0 && strings.HasSuffix(expect[0], "*") && strings.HasPrefix(expect[0], "If-M") {
					d.append("order", stream, `{"events":[{"type":"t"}]}`)
					begun = 1
				}
				store.commits = happened
				store.commit.Store(&unsure)
				got := d.append("order", stream, two, expect...).refused(500, "outcome_unknown", "same ids")
				if strings.Contains(got.body, "secret") || got.header.Get("Weir-Applied") != "" {
					t.Errorf("%v %s", got.header, got.body)
				}
				store.commit.Store(nil)
				status, duplicate := 201, ""
				if happened {
					status, duplicate = 200, `,"duplicate":true`
				}
				d.append("order", stream, two, expect...).want(status, fmt.Sprintf(`{"first":%d,"version":%d%s}`, begun, begun+2, duplicate))
				if p := d.page(streamPath("order", stream) + "/events"); len(p.Events) != begun+2 {
					t.Errorf("%s: %d events", stream, len(p.Events))
				}
			}
		}
		store.commits = false
		store.commit.Store(&unsure)
		d.append("order", "s", `{"events":[{"type":"t"}]}`).refused(500, "outcome_unknown", "Read the stream")
		d.do("DELETE", streamPath("order", "lost[]"), "").refused(500, "outcome_unknown", "Read the stream", "If-Match")
		d.asJSON("PUT", streamPath("order", "lost[]")+"/snapshot", `{"version":1,"value":"x"}`).refused(500, "outcome_unknown", "again")
		d.asJSON("POST", "/v1/categories", `{"name":"other"}`).refused(500, "outcome_unknown")
		store.commit.Store(nil)
	})
}

// Streams take no Idempotency-Key: whoever is to send an append again is told of ids.
func TestWhoSendsAgainIsToldOfIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.category("order")
		store.took.Store(int64(25 * time.Second)) // longer than a request waits
		d.append("order", "s", `{"events":[{"id":"1","type":"t"}]}`).refused(500, "outcome_unknown", "Append them again with the same ids")
	})
}

// lossy is a store that may carry out commits whose answers it loses.
type lossy struct {
	troubled
	commits bool
}

func (s *lossy) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := s.commit.Load(); err != nil && s.commits && errors.Is(*err, eventlog.ErrUnsure) {
		if _, err := s.Store.Commit(ctx, flush); err != nil {
			return nil, err
		}
	}
	return s.troubled.Commit(ctx, flush)
}

// What is appended over HTTP is what Go reads, and the other way round.
func TestStreamsAreTheSameInGo(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	d.append("order", "s", `{"events":[{"id":"1","type":"t","value":{"a":1}}]}`)
	c, err := d.categories.Category(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	done, err := c.Append(t.Context(), "s", 1, stream.NewEvent{ID: "2", Type: "u", Data: []byte("x")})
	if err != nil || done.Version != 2 {
		t.Fatal(done, err)
	}
	for e, err := range c.Events(t.Context(), "s", stream.Range{To: 1}) {
		if err != nil || string(e.Data) != `{"a":1}` || e.ID != "1" {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if p := d.page("/v1/categories/order/streams/s/events?from=1"); len(p.Events) != 1 || p.Events[0].ID != "2" || *p.Events[0].Value != "x" {
		t.Errorf("%+v", p)
	}
	var records struct{ Events []json.RawMessage }
	if d.get("/v1/topics/order/partitions/0/events").into(200, &records); len(records.Events) != 2 {
		t.Errorf("the topic has %s", records.Events)
	}
}
