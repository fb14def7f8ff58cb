package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

type keptView struct {
	Events int64
	Age    int64 `json:"age_ms"`
}

func TestRetentionIsSetForACategoryAndForAStream(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.category("visit")
		d.append("visit", "a/b", `{"events":[{"type":"t"}]}`)
		d.append("visit", "c", `{"events":[{"type":"t"}]}`)
		var v struct {
			Name      string
			Retention keptView
			Streams   []struct {
				Stream    string
				Retention *keptView
			}
		}
		d.asJSON("PATCH", "/v1/categories/visit", `{"retention":{"events":5,"age_ms":3600000}}`).into(200, &v)
		if v.Name != "visit" || v.Retention != (keptView{5, 3_600_000}) {
			t.Errorf("%+v", v)
		}
		const own = "/v1/categories/visit/streams/a%2Fb/retention"
		d.asJSON("PUT", own, `{"age_ms":60000}`).want(204, "")
		list := func(category keptView, a *keptView) {
			t.Helper()
			v.Retention, v.Streams = keptView{}, nil
			d.get("/v1/categories/visit").into(200, &v)
			d.get("/v1/categories/visit/streams").into(200, &v)
			if len(v.Streams) != 2 || v.Retention != category || (v.Streams[0].Retention == nil) != (a == nil) || a != nil && *v.Streams[0].Retention != *a || v.Streams[1].Retention != nil {
				t.Errorf("%+v, want %v and %v", v, category, a)
			}
		}
		list(keptView{5, 3_600_000}, &keptView{0, 60_000})
		c, err := d.categories.Category(t.Context(), "visit")
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := c.Retention(t.Context()); err != nil || kept != (stream.Retention{Events: 5, Age: time.Hour}) {
			t.Errorf("in Go: %+v, %v", kept, err)
		}
		d.asJSON("PUT", own, `{}`).want(204, "")
		list(keptView{5, 3_600_000}, &keptView{})
		d.do("DELETE", own, "").want(204, "")
		d.do("DELETE", own, "").want(204, "")
		list(keptView{5, 3_600_000}, nil)
		d.asJSON("PATCH", "/v1/categories/visit", `{"retention":{"events":7}}`).into(200, &v)
		list(keptView{7, 0}, nil)
		d.asJSON("PATCH", "/v1/categories/visit", `{"retention":{}}`).into(200, &v)
		list(keptView{}, nil)
	})
}

func TestRetentionsThatCannotBe(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("visit")
	d.topic("plain", 1)
	d.append("visit", "s", `{"events":[{"type":"t"}]}`)
	const category, one = "/v1/categories/visit", "/v1/categories/visit/streams/s/retention"
	for body, says := range map[string]string{
		`{}`: `\"retention\" is missing`, `{"retention":null}`: `"pointer":"/retention"`, `{"retention":{"events":0}}`: `"pointer":"/retention/events"`, `{"retention":{"age_ms":-1}}`: `"pointer":"/retention/age_ms"`,
		`{"retention":{"age":1}}`: "allowed are events, age_ms", `{"partitions":5}`: "allowed are retention", `[]`: "an object is expected",
	} {
		d.asJSON("PATCH", category, body).refused(400, "invalid_json", says)
	}
	for _, body := range []string{`{"events":0}`, `{"events":"5"}`, `{"event":5}`, `5`, `{"retention":{}}`} {
		d.asJSON("PUT", one, body).refused(400, "invalid_json")
	}
	for _, name := range []string{"none", "plain"} {
		d.asJSON("PATCH", "/v1/categories/"+name, `{"retention":{}}`).refused(404, "unknown_category")
		d.asJSON("PUT", "/v1/categories/"+name+"/streams/s/retention", `{}`).refused(404, "unknown_category")
	}
	d.asJSON("PUT", "/v1/categories/visit/streams/none/retention", `{"events":1}`).refused(404, "unknown_stream")
	d.do("DELETE", "/v1/categories/visit/streams/none/retention", "").refused(404, "unknown_stream")
	d.asJSON("PUT", one, `{}`, `If-Match: "1"`).refused(400, "invalid_request", "If-Match")
	d.asJSON("PATCH", category, `{"retention":{}}`, "Idempotency-Key: k").refused(400, "invalid_request", "Idempotency-Key")
	d.do("DELETE", one, "x").refused(400, "invalid_request", "body")
}

func TestASubjectIsForgotten(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.category("order")
		d.category("other")
		const about = `{"events":[{"type":"t","subject":"a/b;é","value":"secret"},{"type":"t","subject":"bob","value":"open"}]}`
		d.append("order", "s", about)
		d.append("other", "s", about)
		d.asJSON("POST", "/v1/categories/order/subjects/forget", `{"subject":"a/b;é"}`).want(204, "")
		d.asJSON("POST", "/v1/categories/order/subjects/forget", `{"subject":"a/b;é"}`).want(204, "")
		d.asJSON("POST", "/v1/categories/order/subjects/forget", `{"subject":"nobody"}`).want(204, "")
		if p := d.page("/v1/categories/order/streams/s/events"); !p.Events[0].Erased || p.Events[0].Value != nil || p.Events[1].Erased || *p.Events[1].Value != "open" {
			t.Errorf("%+v", p)
		}
		if p := d.page("/v1/categories/other/streams/s/events"); p.Events[0].Erased || *p.Events[0].Value != "secret" {
			t.Errorf("in another category: %+v", p)
		}
		d.append("order", "s", `{"events":[{"type":"t","subject":"a/b;é","value":"new"}]}`)
		if p := d.page("/v1/categories/order/streams/s/events"); !p.Events[0].Erased || p.Events[2].Erased || *p.Events[2].Value != "new" {
			t.Errorf("after it was forgotten: %+v", p)
		}
	})
}

func TestSubjectsThatCannotBeForgotten(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("order")
	d.topic("plain", 1)
	const path = "/v1/categories/order/subjects/forget"
	for _, body := range []string{`{}`, `{"subject":""}`, `{"subject":"a\nb"}`, `{"subject":"` + strings.Repeat("s", 256) + `"}`} {
		d.asJSON("POST", path, body).refused(400, "invalid_request", "subject")
	}
	for _, body := range []string{`[]`, `{"subject":5}`, `{"subject":null}`, `{"subjects":["a"]}`} {
		d.asJSON("POST", path, body).refused(400, "invalid_json")
	}
	d.asJSON("POST", "/v1/categories/none/subjects/forget", `{"subject":"a"}`).refused(404, "unknown_category")
	d.asJSON("POST", "/v1/categories/plain/subjects/forget", `{"subject":"a"}`).refused(404, "unknown_category")
	d.do("POST", path, `{"subject":"a"}`, "Content-Type: text/plain").refused(415, "unsupported_media_type")
	d.get(path).refused(405, "method_not_allowed")
}
