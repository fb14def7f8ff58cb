package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// appendAll appends to several streams. Each part is the inside of an object.
func (d *door) appendAll(parts ...string) answer {
	d.t.Helper()
	return d.asJSON("POST", "/v1/categories/append", `{"streams":[{`+strings.Join(parts, "},{")+`}]}`)
}

// part is what is appended to a stream: one event with an id.
func part(category, stream, expect, id string) string {
	return fmt.Sprintf(`"category":%q,"stream":%q,"expect":%s,"events":[{"id":%q,"type":"t","value":%q}]`, category, stream, expect, id, id)
}

// ids are those of a stream's events.
func (d *door) ids(category, stream string) (list string) {
	d.t.Helper()
	a := d.get(streamPath(category, stream) + "/events")
	if a.status == 404 {
		return ""
	}
	var p streamPage
	a.into(200, &p)
	for _, e := range p.Events {
		list += e.ID
	}
	return list
}

func TestSeveralStreamsAreAppendedToTogetherOrNone(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.category("account")
		d.category("transfer")
		d.append("account", "a", `{"events":[{"id":"0","type":"t"}]}`).want(201, `{"first":0,"version":1}`)
		transfer := []string{part("account", "a", `1`, "1"), part("account", "b/é", `"none"`, "2"), part("transfer", "t", `"any"`, "3")}
		d.appendAll(transfer...).want(201, `{"streams":[{"first":1,"version":2},{"first":0,"version":1},{"first":0,"version":1}]}`)
		d.appendAll(transfer...).want(200, `{"streams":[{"first":1,"version":2,"duplicate":true},{"first":0,"version":1,"duplicate":true},{"first":0,"version":1,"duplicate":true}]}`)
		are := func(want string) {
			t.Helper()
			if got := fmt.Sprintf("a=%s b=%s t=%s c=%s", d.ids("account", "a"), d.ids("account", "b/é"), d.ids("transfer", "t"), d.ids("transfer", "c")); got != want {
				t.Errorf("the streams are %s, want %s", got, want)
			}
		}
		are("a=01 b=2 t=3 c=")
		// A conflict with the last of them appends to none.
		d.appendAll(part("transfer", "c", `"none"`, "4"), part("account", "a", `1`, "5")).refused(412, "version_conflict", `"category":"account"`, `"stream":"a"`, `"version":2`, `"exists":true`)
		d.appendAll(part("account", "a", `2`, "4"), part("transfer", "c", `"exists"`, "5")).refused(412, "version_conflict", `"category":"transfer"`, `"stream":"c"`, `"version":0`, `"exists":false`)
		d.appendAll(part("account", "a", `2`, "4"), part("transfer", "t", `"none"`, "5")).refused(412, "version_conflict", `"category":"transfer"`, `"stream":"t"`, `"version":1`)
		// So do a category that is not there, a topic that is none, and a stream that is archived.
		d.appendAll(part("account", "a", `2`, "4"), part("none", "c", `"any"`, "5")).refused(404, "unknown_category", "none")
		d.topic("plain", 1)
		d.appendAll(part("account", "a", `2`, "4"), part("plain", "c", `"any"`, "5")).refused(404, "unknown_category", "plain")
		d.do("POST", streamPath("transfer", "t")+"/archive", "").want(204, "")
		d.appendAll(part("account", "a", `2`, "4"), part("transfer", "t", `"any"`, "5")).refused(409, "stream_archived", `\"t\" of category \"transfer\"`)
		d.do("POST", streamPath("transfer", "t")+"/unarchive", "").want(204, "")
		// The ids of one stream were used for other events.
		d.appendAll(part("account", "a", `1`, "1"), strings.Replace(part("account", "b/é", `0`, "2"), `"value":"2"`, `"value":"x"`, 1)).refused(422, "event_id_reused", `\"b/é\" of category \"account\"`)
		are("a=01 b=2 t=3 c=")
	})
}

func TestAppendsToSeveralStreamsThatCannotBe(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("account")
	for body, says := range map[string]string{
		`{}`:                        `\"streams\" is missing`,
		`{"streams":[]}`:            "no streams",
		`{"streams":{}}`:            `"pointer":"/streams"`,
		`{"streams":[5]}`:           `"pointer":"/streams/0"`,
		`{"events":[{"type":"t"}]}`: "allowed are streams",
		`{"streams":[{` + part("account", "", `0`, "1") + `}]}`:                                                                                             `\"stream\" is missing or empty`,
		`{"streams":[{` + part("", "s", `0`, "1") + `}]}`:                                                                                                   `\"category\" is missing or empty`,
		`{"streams":[{"category":"account","stream":"s"}]}`:                                                                                                 `\"events\" is missing or empty`,
		`{"streams":[{"category":"account","stream":"s","events":[]}]}`:                                                                                     `\"events\" is missing or empty`,
		`{"streams":[{"category":"account","stream":"s","events":[{}]}]}`:                                                                                   `"pointer":"/streams/0/events/0"`,
		`{"streams":[{"category":"account","stream":"s","evnts":[]}]}`:                                                                                      "did you mean events?",
		`{"streams":[{` + part("account", "s", `-1`, "1") + `}]}`:                                                                                           `"pointer":"/streams/0/expect"`,
		`{"streams":[{` + part("account", "s", `"-1"`, "1") + `}]}`:                                                                                         `\"none\", \"exists\" or \"any\"`,
		`{"streams":[{` + part("account", "s", `9223372036854775807`, "1") + `}]}`:                                                                          `"pointer":"/streams/0/expect"`,
		`{"streams":[{` + part("account", "s", `1.0`, "1") + `}]}`:                                                                                          `"pointer":"/streams/0/expect"`,
		`{"streams":[{` + part("account", "s", `null`, "1") + `}]}`:                                                                                         `"pointer":"/streams/0/expect"`,
		`{"streams":[{` + part("account", "s", `0`, "1") + `},{` + part("account", "s", `1`, "2") + `}]}`:                                                   "it occurs twice",
		`{"streams":[{` + part("account", "s", `0`, "1") + `},{"category":"account","stream":"u","events":[{"type":"weir.x"}]}]}`:                           `stream \"u\" of category \"account\"`,
		`{"streams":[{` + part("account", "s", `0`, "1") + `},{` + part("account", strings.Repeat("n", 256), `0`, "2") + `}]}`:                              "at most 255",
		`{"streams":[{` + part("account", "s", `0`, "1") + `},{"category":"account","stream":"u","events":[{"id":"1","type":"t"},{"id":"1","type":"t"}]}]}`: "same id",
	} {
		if got := d.asJSON("POST", "/v1/categories/append", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%.200s: %d %.400s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	for _, header := range []string{`If-Match: "0"`, "If-None-Match: *", "Idempotency-Key: k"} {
		name, _, _ := strings.Cut(header, ":")
		d.asJSON("POST", "/v1/categories/append", `{"streams":[{`+part("account", "s", `0`, "1")+`}]}`, header).refused(400, "invalid_request", name)
	}
	d.do("POST", "/v1/categories/append", `{"streams":[]}`, "Content-Type: text/plain").refused(415, "unsupported_media_type")
	var most []string
	for i := range 101 {
		most = append(most, part("account", fmt.Sprint("s", i), `"none"`, "1"))
	}
	d.appendAll(most...).refused(413, "too_large", `"limit":100`)
	half := `"category":"account","stream":"%s","events":` + many(5001, `{"type":"t"}`)
	d.appendAll(fmt.Sprintf(half, "s"), fmt.Sprintf(half, "u")).refused(413, "too_large", `"limit":10000`)
	d.appendAll(part("account", "s", `0`, "1"), `"category":"account","stream":"u","events":[{"type":"t","value":"`+strings.Repeat("v", 2<<20)+`"}]`).
		refused(413, "too_large", `stream \"u\" of category \"account\"`, "max.message.bytes")
	var list struct{ Streams []any }
	if d.get("/v1/categories/account").into(200, &list); len(list.Streams) > 0 {
		t.Errorf("what was refused left %v", list)
	}
	if got := d.appendAll(most[:100]...); got.status != 201 {
		t.Errorf("100 streams: %d %s", got.status, got.body)
	}
}

// Of clients that append to the same streams at the same time at one version, each change of all
// streams is there as a whole.
func TestConcurrentAppendsToSeveralStreamsDoNotMix(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("account")
	const clients = 8
	statuses := make(chan int, clients)
	for i := range clients {
		go func() {
			id := fmt.Sprint(i)
			statuses <- d.appendAll(part("account", "a", `"none"`, id), part("account", "b", `"none"`, id)).status
		}()
	}
	done := 0
	for range clients {
		switch status := <-statuses; status {
		case 201:
			done++
		case 412:
		default:
			t.Errorf("status %d", status)
		}
	}
	if a, b := d.ids("account", "a"), d.ids("account", "b"); done != 1 || len(a) != 1 || a != b {
		t.Errorf("%d were appended; the streams have %q and %q", done, a, b)
	}
}

func TestAnAppendToSeveralStreamsWithoutAnAnswerIsResolvedByItsIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lossy{troubled: troubled{Store: memory.New()}}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		unsure := fmt.Errorf("%w: password=secret", eventlog.ErrUnsure)
		for name, happened := range map[string]bool{"happened": true, "lost": false} {
			d.category(name)
			both := []string{part(name, "a", `"none"`, "1"), part(name, "b", `"any"`, "2")}
			store.commits = happened
			store.commit.Store(&unsure)
			d.appendAll(both...).refused(500, "outcome_unknown", "same ids")
			d.appendAll(`"category":"`+name+`","stream":"c","events":[{"type":"t"}]`).refused(500, "outcome_unknown", "Read the stream")
			store.commit.Store(nil)
			status, duplicate := 201, ""
			if happened {
				status, duplicate = 200, `,"duplicate":true`
			}
			d.appendAll(both...).want(status, fmt.Sprintf(`{"streams":[{"first":0,"version":1%[1]s},{"first":0,"version":1%[1]s}]}`, duplicate))
			if a, b := d.ids(name, "a"), d.ids(name, "b"); a != "1" || b != "2" {
				t.Errorf("%s: the streams have %q and %q", name, a, b)
			}
		}
	})
}
