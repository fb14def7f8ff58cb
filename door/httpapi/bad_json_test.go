package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
)

// H4, H5
func TestBadJSONIsRefusedWithItsPlace(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	deep := strings.Repeat("[", 100_000)
	for _, c := range []struct {
		body, pointer string
		line, column  int
		says          string
	}{
		{"", "", 1, 1, "empty"},
		{" \n ", "", 2, 2, "empty"},
		{"\ufeff{}", "", 1, 1, "byte order mark"},
		{`[]`, "", 1, 1, "an object is expected here, but there is an array"},
		{`{}`, "", 0, 0, `"events" is missing`},
		{`{"events":{}}`, "/events", 1, 11, "an array is expected"},
		{`{"events":[{"value":1}],"events":[]}`, "/events", 1, 25, "twice"},
		{`{"event":[]}`, "/event", 1, 10, "did you mean events?"},
		{`{"events":[5]}`, "/events/0", 1, 12, "an object is expected here, but there is a number"},
		{`{"events":[{}]}`, "/events/0", 1, 14, "no value"},
		{"{\"events\":[\n{\"value\":1,\n \"value\":2}]}", "/events/0/value", 3, 2, "twice"},
		{`{"events":[{"value":1,"value_b64":""}]}`, "/events/0/value_b64", 1, 37, "give one of them"},
		{`{"events":[{"value":1,"key":"","key_b64":""}]}`, "/events/0/key_b64", 1, 42, "give one of them"},
		{`{"events":[{"value":1,"kye":""}]}`, "/events/0/kye", 1, 29, "did you mean key?"},
		{`{"events":[{"value":1,"colour":""}]}`, "/events/0/colour", 1, 32, "allowed are key, key_b64"},
		{`{"events":[{"value":1,"key":5}]}`, "/events/0/key", 1, 29, "a string is expected here, but there is a number"},
		{`{"events":[{"value":1,"partition":1.5}]}`, "/events/0/partition", 1, 35, "a whole number"},
		{`{"events":[{"value":1,"partition":-1}]}`, "/events/0/partition", 1, 35, "a whole number"},
		{`{"events":[{"value":1,"partition":"1"}]}`, "/events/0/partition", 1, 35, "a number is expected here"},
		{`{"events":[{"value":1,"partition":2147483648}]}`, "/events/0/partition", 1, 35, "a whole number"},
		{`{"events":[{"value":1,"timestamp":1e3}]}`, "/events/0/timestamp", 1, 35, "a whole number"},
		{`{"events":[{"value":1,"timestamp":9223372036854775808}]}`, "/events/0/timestamp", 1, 35, "a whole number"},
		{`{"events":[{"value":NaN}]}`, "/events/0/value", 1, 21, "a value is expected here"},
		{`{"events":[{"value":Infinity}]}`, "/events/0/value", 1, 21, "a value is expected here"},
		{`{"events":[{"value":1,"partition":1e400}]}`, "/events/0/partition", 1, 35, "a whole number"},
		{`{"events":[{"value":01}]}`, "/events/0/value", 1, 21, "not a valid JSON number"},
		{`{"events":[{"value":1.}]}`, "/events/0/value", 1, 21, "not a valid JSON number"},
		{`{"events":[{"value":-}]}`, "/events/0/value", 1, 21, "not a valid JSON number"},
		{`{"events":[{"value":nul}]}`, "/events/0/value", 1, 21, "expected here"},
		{`{"events":[{"value":'a'}]}`, "/events/0/value", 1, 21, "a value is expected here"},
		{`{"events":[{"value":{"a":1,"a":2}}]}`, "/events/0/value/a", 1, 28, "twice"},
		{`{"events":[{"value":{"a/b~c":{"a":+1}}}]}`, "/events/0/value/a~1b~0c/a", 1, 35, "a value is expected here"},
		{`{"events":[{"value":` + deep + `}]}`, "", 1, 82, "nested deeper than 64"},
		{"{\"events\":[{\"value\":\"a\xffb\"}]}", "/events/0/value", 1, 23, "not valid UTF-8"},
		{"{\"events\":[{\"value\":\"\xc0\xaf\"}]}", "/events/0/value", 1, 22, "not valid UTF-8"},
		{"{\"events\":[{\"value\":\"\\n\xed\xa0\x80\"}]}", "/events/0/value", 1, 24, "not valid UTF-8"},
		{`{"events":[{"value":"\ud800"}]}`, "/events/0/value", 1, 22, "half of a surrogate pair"},
		{`{"events":[{"value":"\udc00\ud800"}]}`, "/events/0/value", 1, 22, "half of a surrogate pair"},
		{`{"events":[{"value":"\ud800\u0041"}]}`, "/events/0/value", 1, 22, "half of a surrogate pair"},
		{`{"events":[{"value":"\x41"}]}`, "/events/0/value", 1, 22, "a backslash"},
		{`{"events":[{"value":"\u12g4"}]}`, "/events/0/value", 1, 22, "a backslash"},
		{"{\"events\":[{\"value\":\"a\nb\"}]}", "/events/0/value", 1, 23, `\u000a`},
		{`{"events":[{"value":"a`, "/events/0/value", 1, 23, "does not end"},
		{`{"events":[{"value":"a\`, "/events/0/value", 1, 23, "does not end"},
		{`{"events":[{"value":"a"`, "/events/0", 1, 24, "there is the end"},
		{`{"events":[{"value":"a"},]}`, "/events/1", 1, 26, "an object is expected"},
		{`{"events":[{"value":"a",}]}`, "/events/0", 1, 25, "a name in quotes"},
		{`{"events":[{value:"a"}]}`, "/events/0", 1, 13, "a name in quotes"},
		{`{"events":[{"value" "a"}]}`, "/events/0/value", 1, 21, "a colon"},
		{`{"events":[{"value":"a"}]} x`, "", 1, 28, "more bytes after the end"},
		{`{"events":[{"value":"a"}]}{}`, "", 1, 27, "more bytes after the end"},
		{`{"events":[{"value":"a"}] /* no */}`, "", 1, 27, "a comma"},
		{`{"events":[{"value_b64":"a"}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":"YQ"}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":"YQ== "}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":"YQ\n=="}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":"YR=="}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":"_-8="}]}`, "/events/0/value_b64", 1, 25, "not valid base64"},
		{`{"events":[{"value_b64":7}]}`, "/events/0/value_b64", 1, 25, "a string is expected"},
		{`{"events":[{"value":1,"headers":"a"}]}`, "/events/0/headers", 1, 33, "an object or an array"},
		{`{"events":[{"value":1,"headers":{"a":1}}]}`, "/events/0/headers/a", 1, 38, "a string is expected"},
		{`{"events":[{"value":1,"headers":{"a":"","a":""}}]}`, "/events/0/headers/a", 1, 41, "twice"},
		{`{"events":[{"value":1,"headers":[{"name":"a"}]}]}`, "/events/0/headers/0", 1, 46, "must have one name"},
		{`{"events":[{"value":1,"headers":[{"name":"a","value":"","value_b64":""}]}]}`, "/events/0/headers/0", 1, 72, "must have one name"},
	} {
		got := d.asJSON("POST", "/v1/topics/orders/batch", c.body)
		var p struct {
			Type, Detail, Pointer string
			Line, Column          int
		}
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 400 || p.Type != "urn:weir:problem:invalid_json" {
			t.Errorf("%.80s: %d %s", c.body, got.status, got.body)
			continue
		}
		if deep := strings.HasPrefix(p.Pointer, "/events/0/value/0/0/0"); p.Line != c.line || p.Column != c.column || p.Pointer != c.pointer && !deep || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%.80s\n%s\nwant line %d, column %d, %s, %q", c.body, got.body, c.line, c.column, c.pointer, c.says)
		}
	}
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

// H4
func TestTooManyEventsAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[`+strings.Repeat(`{"value":1},`, 1_000_000)+`{"value":1}]}`).
		refused(413, "too_large", `"limit":10000`)
	d.do("POST", "/v1/topics/orders/batch", strings.Repeat("{\"value\":1}\n", 10_001), "Content-Type: application/x-ndjson").
		refused(413, "too_large", `"limit":10000`)
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
	got := d.do("POST", "/v1/topics/orders/batch", strings.Repeat("{\"value\":1}\n", 10_000), "Content-Type: application/x-ndjson")
	if n := d.end("orders", 0); got.status != 200 || n != 10_000 {
		t.Errorf("%d: %d records", got.status, n)
	}
}

// H4: what is JSON and no text is kept as it is written.
func TestValuesAreKeptAsWritten(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	values := []string{`9007199254740993`, `-0`, `1.10`, `1E2`, `123456789012345678901234567890`, `1e400`, `{"a":[-1.5E+4000,1e-999]}`, `true`, `[]`, `{ "b" : 1, "a":[null, "\u00e9"] }`}
	for i, v := range values {
		d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[{"value": `+v+` }]}`).want(200, fmt.Sprintf(`{"events":[{"partition":0,"offset":%d}]}`, i))
	}
	var page struct{ Events []struct{ Value string } }
	d.get("/v1/topics/orders/partitions/0/events").decode(&page)
	for i, v := range values {
		if page.Events[i].Value != v {
			t.Errorf("%s became %s", v, page.Events[i].Value)
		}
	}
	for written, text := range map[string]string{`"\u00e9\ud83d\udcb6\/\"\\\b\f\n\r\t\u0000"`: "é💶/\"\\\b\f\n\r\t\x00", `"a\u2028b"`: "a\u2028b", `""`: ""} {
		d.asJSON("POST", "/v1/topics/orders/batch", `{"events":[{"value":`+written+`}]}`)
		d.get("/v1/topics/orders/partitions/0/events?offset=" + fmt.Sprint(d.end("orders", 0)-1)).decode(&page)
		if page.Events[0].Value != text {
			t.Errorf("%s became %q", written, page.Events[0].Value)
		}
	}
}

// curl -d takes line ends out of a file. The error says so.
func TestLinesThatBecameOneAreToldSo(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	send := func(body string) answer {
		return d.do("POST", "/v1/topics/orders/batch", body, "Content-Type: application/x-ndjson")
	}
	send(`{"value":1}{"value":2}`).refused(400, "invalid_json", "line 1, column 12", "--data-binary")
	for _, other := range []string{`{"value":"}{"`, `{"value":1}x`, `{"value":1}` + "\n" + `{"value":2}{"value":3}`} {
		if got := send(other).refused(400, "invalid_json"); strings.Contains(got.body, "data-binary") && !strings.Contains(other, "}{") {
			t.Errorf("%s: %s", other, got.body)
		}
	}
	if got := d.do("POST", "/v1/topics/nowhere/events", "a").refused(404, "unknown_topic", "Content-Type: application/json"); strings.Contains(got.body, "EnsureTopic") || strings.Contains(got.body, "weir topic") {
		t.Errorf("the answer names what other doors do: %s", got.body)
	}
}
