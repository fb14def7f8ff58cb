package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pathname"
	"github.com/weir-log/weir/use/user"
)

// document is openapi.yaml, checked.
var document = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(openapi3.NewLoader().Context); err != nil {
		return nil, err
	}
	plain := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		all, err := io.ReadAll(body)
		return string(all), err
	}
	for _, media := range []string{"application/x-ndjson", "application/yaml", "text/event-stream"} {
		openapi3filter.RegisterBodyDecoder(media, plain)
	}
	return legacy.NewRouter(doc)
})

// documented is a transport that holds what passes to openapi.yaml: answers always, and requests
// where the answer is that they were right.
type documented struct {
	t    testing.TB
	next http.RoundTripper
}

func (d *documented) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	response, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	router, err := document()
	if err != nil {
		return response, nil // a test of its own says why
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		return response, nil // a path that is not part of the API
	}
	asked := &openapi3filter.RequestValidationInput{Request: r.Clone(r.Context()), Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	asked.Request.Body = io.NopCloser(bytes.NewReader(sent))
	if response.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(r.Context(), asked); err != nil && r.Header.Get("Content-Encoding") == "" {
			d.t.Errorf("%s %s was answered with %d, and openapi.yaml does not allow it: %v", r.Method, r.URL, response.StatusCode, err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: asked, Status: response.StatusCode, Header: response.Header}
	if !strings.Contains(response.Header.Get("Content-Type"), "event-stream") && !strings.HasSuffix(r.URL.Path, "/stream") {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		answer.SetBodyBytes(body)
	} else {
		answer.Options = &openapi3filter.Options{ExcludeResponseBody: true, IncludeResponseStatus: true}
	}
	if err := openapi3filter.ValidateResponse(r.Context(), answer); err != nil {
		d.t.Errorf("the answer to %s %s, %d, is not as openapi.yaml says: %v", r.Method, r.URL, response.StatusCode, err)
	}
	return response, nil
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := document(); err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			line, divider := method+" "+path, "?"
			for _, p := range operation.Parameters {
				if p.Value.In == "query" {
					line, divider = line+divider+p.Value.Name, "&"
				}
			}
			described = append(described, line)
		}
	}
	served := httpapi.Routes()
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("openapi.yaml has\n%s\nserved is\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
}

// constraints lists what a document says in numbers, defaults and patterns, by a short name of the
// place.
func constraints(at string, v any, found map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if name, ok := v["name"].(string); ok && v["in"] != nil {
			at += "/" + name
		}
		for k, x := range v {
			switch _, deeper := x.(map[string]any); {
			case !deeper && slices.Contains([]string{"default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"}, k):
				if n, ok := x.(float64); ok {
					x = int64(n)
				}
				found[at+" "+k] = fmt.Sprint(x)
			case slices.Contains([]string{"paths", "components", "requestBody", "content", "application/json", "schema", "properties", "parameters", "schemas", "items", "oneOf", "responses", "200"}, k):
				constraints(at, x, found)
			default:
				constraints(strings.TrimPrefix(at+"/"+strings.Trim(k, "/"), "/"), x, found)
			}
		}
	case []any:
		for _, x := range v {
			constraints(at, x, found)
		}
	}
}

// Every number, default and pattern of the document is that of the code.
func TestDocumentHasTheNumbersOfTheCode(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := doc.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	said, want := make(map[string]string), make(map[string]string)
	constraints("", all, said)
	hold := func(at string, rest ...any) {
		for i := 0; i < len(rest); i += 2 {
			want[fmt.Sprint(at, " ", rest[i])] = fmt.Sprint(rest[i+1])
		}
	}
	const (
		topics, topic   = "v1/topics/", "v1/topics/{topic}/"
		group           = "v1/groups/{group}/"
		join, partition = group + "members/post/", math.MaxInt32
	)
	// TestDocumentedNamesAreThoseThatTheServerTakes
	const topicNames, visible = `^(\.*[a-zA-Z0-9_-][a-zA-Z0-9._-]*|\.{3,})$`, `^[^\x00-\x1f\x7f]+$`
	hold("group/group", "minLength", 1, "maxLength", 512) // TestGroupNamesHaveABound
	hold("member/member", "minLength", 1)
	hold("partition/partition", "minimum", 0, "maximum", partition)
	hold("max/max", "minimum", 1, "default", httpapi.EventsDefault)
	hold("wait/wait_ms", "minimum", 0, "default", 0)
	hold("idempotencyKey/Idempotency-Key", "minLength", 1, "maxLength", httpapi.OnceKeyMax, "pattern", "^[!-~]+$") // TestDocumentAllowsWhatTheServerTakes
	hold("TopicName", "minLength", 1, "maxLength", 249, "pattern", topicNames)                                     // likewise
	hold("NewEvent/partition", "minimum", 0, "maximum", partition)
	hold("NewEvent/timestamp", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold(topics+"post/partitions", "minimum", 1, "maximum", eventlog.PartitionsMax)
	hold(topic+"patch/partitions", "minimum", 1, "maximum", eventlog.PartitionsMax)
	hold(topic+"events/post/partition", "minimum", 0, "maximum", partition)
	hold(topic+"events/post/timestamp", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold(topic+"events/post/tombstone", "default", false)
	hold(topic+"batch/post/events", "minItems", 1, "maxItems", httpapi.EventsMax)
	hold(topic+"batch/post/partial", "default", false)
	hold(topic+"partitions/{partition}/events/get/offset", "default", httpapi.ReadDefault, "pattern", "^([0-9]+|earliest|latest)$")
	hold(topic+"events/get/partition", "minimum", 0, "maximum", partition)
	hold(group+"offsets/put/offsets", "minItems", 1, "maxItems", httpapi.EventsMax)
	hold(group+"offsets/put/offsets/partition", "minimum", 0, "maximum", partition)
	hold(group+"offsets/put/offsets/offset", "minimum", 0)
	hold(group+"offsets/put/offsets/timestamp", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold(join+"topics", "minItems", 1)
	hold(join+"from", "default", "earliest") // TestMemberReadsAndCommits
	hold(join+"session_ms", "minimum", httpapi.SessionMin.Milliseconds(), "maximum", httpapi.SessionMax.Milliseconds(), "default", httpapi.SessionDefault.Milliseconds())
	hold(join+"client", "maxLength", 255) // TestMemberNamesHaveABound
	hold(group+"members/{member}/events/get/next", "maxLength", httpapi.CursorMax)
	hold(group+"members/{member}/commit/post/offsets/partition", "minimum", 0, "maximum", partition)
	hold(group+"members/{member}/commit/post/offsets/offset", "minimum", 0)
	const queue = "v1/queues/{queue}/"
	hold("QueueName", "minLength", 1, "maxLength", 244, "pattern", topicNames)
	hold("message/message", "pattern", "^[0-9]+(-[0-9]+)?$")
	hold("v1/queues/post/name", "minLength", 1, "maxLength", 244, "pattern", topicNames) // TestQueuesThatMayNotBe
	hold("v1/queues/post/partitions", "minimum", 1, "maximum", eventlog.PartitionsMax)
	hold(queue+"messages/get/max", "minimum", 1, "default", httpapi.LettersDefault)
	hold(queue+"messages/post/delay_ms", "minimum", 0, "maximum", httpapi.PauseMax, "default", 0)
	hold(queue+"messages/post/at", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold(queue+"messages/post/unique", "minLength", 1)
	hold(queue+"messages/post/priority", "minimum", 0, "maximum", httpapi.PrioritiesMax-1, "default", 0)
	hold(queue+"batch/post/messages", "minItems", 1, "maxItems", httpapi.EventsMax)
	hold("schedule/schedule", "minLength", 1, "maxLength", 100, "pattern", topicNames) // TestSchedulesAreSetListedAndDeleted
	hold(queue+"schedules/{schedule}/put/paused", "default", false)
	hold(queue+"claim/post/max", "minimum", 1, "default", httpapi.ClaimDefault)
	hold(queue+"claim/post/wait_ms", "minimum", 0, "default", 0)
	hold(queue+"claim/post/lease_ms", "minimum", httpapi.LeaseMin, "maximum", httpapi.LeaseMax)
	hold(queue+"claim/post/ack", "maxItems", httpapi.EventsMax)
	hold(queue+"nack/post/delay_ms", "minimum", 0, "maximum", httpapi.PauseMax)
	hold(queue+"nack/post/reject", "default", false)
	hold(queue+"nack/post/uncounted", "default", false)
	hold(queue+"extend/post/lease_ms", "minimum", httpapi.LeaseMin, "maximum", httpapi.LeaseMax)
	hold(queue+"dead/get/after", "pattern", "^[0-9]+-[0-9]+$")    // TestDocumentedNamesAreThoseThatTheServerTakes
	hold(queue+"messages/get/from", "pattern", "^[0-9]+-[0-9]+$") // likewise
	hold(queue+"dead/get/max", "minimum", 1, "default", httpapi.LettersDefault)
	hold("requestBodies/sweep/letters", "minItems", 1, "maxItems", httpapi.LettersMax)
	hold("requestBodies/sweep/per_second", "minimum", 0, "maximum", httpapi.RateMax)
	hold("Receipts", "minItems", 1, "maxItems", httpapi.EventsMax, "minLength", 1)
	hold("NewMessage/timestamp", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold("NewMessage/at", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold("NewMessage/delay_ms", "minimum", 0, "maximum", httpapi.PauseMax)
	hold("NewMessage/priority", "minimum", 0, "maximum", httpapi.PrioritiesMax-1)
	hold("NewMessage/unique", "minLength", 1)
	const category, one = "v1/categories/{category}/", "v1/categories/{category}/streams/{stream}/"
	hold("stream/stream", "minLength", 1, "maxLength", 255, "pattern", visible)         // TestStreamsThatCannotBeNamed
	hold("projection/projection", "minLength", 1, "maxLength", 100, "pattern", visible) // TestProjectionsThatCannotBeAreRefused, of the library
	hold("ifMatch/If-Match", "pattern", `^(\*|"[0-9]+")$`)                              // TestWhatAnAppendExpects
	hold("v1/categories/post/partitions", "minimum", 1, "maximum", eventlog.PartitionsMax, "default", 4)
	hold("NewRetention/events", "minimum", 1)
	hold("NewRetention/age_ms", "minimum", 1, "maximum", httpapi.PauseMax)
	hold("v1/categories/append/post/streams", "minItems", 1, "maxItems", httpapi.PartsMax)
	hold("v1/categories/append/post/streams/stream", "minLength", 1, "maxLength", 255) // TestStreamsThatCannotBeNamed
	hold("v1/categories/append/post/streams/expect", "default", "any", "minimum", 0)
	hold("v1/categories/append/post/streams/events", "minItems", 1, "maxItems", httpapi.EventsMax)
	hold("v1/categories/{category}/events/get/tag", "minItems", 1, "maxItems", 16, "minLength", 1, "maxLength", 255, "pattern", visible) // TestTagsAreReadAndBoundAppends
	hold("v1/categories/{category}/subjects/forget/post/subject", "minLength", 1, "maxLength", 255, "pattern", visible)                  // TestASubjectIsForgotten
	hold(one+"events/post/within", "minLength", 1)
	hold(category+"streams/get/max", "minimum", 1, "default", httpapi.ListedDefault)
	hold(one+"events/get/from", "default", "0")
	hold(one+"events/get/to", "minimum", 1)
	hold(one+"events/get/until", "minimum", 0, "maximum", httpapi.TimestampMax)
	hold(one+"events/get/backward", "default", false)
	hold(one+"events/get/max", "minimum", 1, "default", httpapi.StreamPageDefault)
	hold(one+"events/post/events", "minItems", 1, "maxItems", httpapi.EventsMax)
	hold(one+"snapshot/get/at", "minimum", 0)
	hold(one+"snapshot/put/version", "minimum", 0)
	hold("NewStreamEvent/id", "minLength", 1, "maxLength", 128) // TestEventsThatCannotBeAppended
	hold("NewStreamEvent/type", "minLength", 1, "maxLength", 255)
	hold("NewStreamEvent/subject", "minLength", 1, "maxLength", 255, "pattern", visible)
	hold("NewStreamEvent/tags", "maxItems", 16, "minLength", 1, "maxLength", 255, "pattern", visible)
	hold("NewStreamEvent/timestamp", "minimum", 0, "maximum", httpapi.TimestampMax)
	settings := "NewQueueSettings/" // their defaults: TestAQueueIsCreatedDescribedAlteredAndDeleted
	hold(settings+"lease_ms", "minimum", httpapi.LeaseMin, "maximum", httpapi.LeaseMax, "default", 30000)
	hold(settings+"attempts", "minimum", -1, "maximum", httpapi.AttemptsMax, "default", 10)
	hold(settings+"backoff_ms", "minimum", 1, "maximum", httpapi.PauseMax, "default", 1000)
	hold(settings+"backoff_max_ms", "minimum", 1, "maximum", httpapi.PauseMax, "default", 300000)
	hold(settings+"delays_ms", "maxItems", httpapi.DelaysMax, "minimum", 0, "maximum", httpapi.PauseMax)
	hold(settings+"ttl_ms", "minimum", 1, "maximum", httpapi.PauseMax)
	hold(settings+"window", "minimum", 1, "maximum", httpapi.WindowMost, "default", 2000)
	hold(settings+"concurrency", "minimum", 1, "maximum", httpapi.ConcurrencyMax)
	hold(settings+"rate", "minimum", 0, "maximum", httpapi.RateMax)
	hold(settings+"priorities", "minimum", 1, "maximum", httpapi.PrioritiesMax, "default", 1)
	for _, name := range []string{"drop_expired", "key_order", "keep_done", "paused", "unique"} {
		hold(settings+name, "default", false)
	}
	for _, name := range []string{"from", "expires"} {
		hold("v1/keys/post/"+name, "minimum", 0, "maximum", httpapi.TimestampMax)
	}
	hold("Mechanisms", "maxItems", len(user.Mechanisms))
	hold("Iterations", "minimum", user.IterationsMin, "maximum", user.IterationsMax, "default", user.IterationsDefault)
	hold("v1/acls/get/pattern", "default", "match") // TestACLsAreManagedOverHTTP
	hold("v1/acls/post/prefixed", "default", false)
	hold("v1/acls/post/host", "default", "*")
	hold("v1/acls/delete/damaged", "default", false)
	hold("v1/quotas/delete/damaged", "default", false)
	for at, v := range want {
		if said[at] != v {
			t.Errorf("%s: openapi.yaml says %q, and the code %s", at, said[at], v)
		}
	}
	for at, v := range said {
		if _, held := want[at]; !held {
			t.Errorf("%s: openapi.yaml says %s, and nothing here holds it to that", at, v)
		}
	}

	// What stands in the text alone.
	for name, p := range map[string]*openapi3.ParameterRef{"max": doc.Components.Parameters["max"], "wait": doc.Components.Parameters["wait"]} {
		most := map[string]int64{"max": httpapi.EventsMax, "wait": httpapi.WaitMax.Milliseconds()}[name]
		if !strings.Contains(strings.ToLower(p.Value.Description), fmt.Sprintf("above %d count as %[1]d", most)) {
			t.Errorf("%s: %s", name, p.Value.Description)
		}
	}
	stream := doc.Paths.Value("/v1/topics/{topic}/events").Get.Description
	for _, words := range []string{fmt.Sprintf("more than %d partitions", httpapi.StreamPartitions),
		fmt.Sprintf("has %.0f s", httpapi.PageGrace.Seconds()), fmt.Sprintf("for each %d KiB", httpapi.PageRate>>10)} {
		if !strings.Contains(stream, words) {
			t.Errorf("the stream's description does not say %q", words)
		}
	}
}

// All problems that there are in the code, and no others, are in openapi.yaml and in docs/http.md.
func TestDocumentHasEveryProblem(t *testing.T) {
	status := make(map[string]int)
	for code := 300; code < 600; code++ {
		status["Status"+strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code))] = code
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var types, rows []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range regexp.MustCompile(`= +kind\{"(.+)", http\.(\w+), "(.+)"\}`).FindAllStringSubmatch(string(text), -1) {
			types = append(types, "urn:weir:problem:"+kind[1])
			rows = append(rows, fmt.Sprintf("| `%s` | %d | %s |", kind[1], status[kind[2]], kind[3]))
		}
	}
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, name := range doc.Components.Schemas["Problem"].Value.Properties["type"].Value.Enum {
		described = append(described, fmt.Sprint(name))
	}
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| [0-9]+ \\| .+ \\|$").FindAllString(string(page), -1)
	for _, list := range [][]string{types, rows, described, told} {
		slices.Sort(list)
	}
	if len(types) < 20 || !slices.Equal(described, types) {
		t.Errorf("openapi.yaml has\n%s\nthe code has\n%s", strings.Join(described, "\n"), strings.Join(types, "\n"))
	}
	if !slices.Equal(told, rows) {
		t.Errorf("docs/http.md has\n%s\nthe code has\n%s", strings.Join(told, "\n"), strings.Join(rows, "\n"))
	}
}

// docs/http.md says for each path what a key and a user need, as the code asks for it.
func TestDocumentSaysWhatEveryPathNeeds(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile("(?m)^\\| `(GET|POST|PUT|PATCH|DELETE) /v1/.+ \\|$").FindAllString(string(page), -1)
	if rows := httpapi.Needs(); !slices.Equal(told, rows) {
		t.Errorf("docs/http.md has\n%s\nthe code asks for\n%s", strings.Join(told, "\n"), strings.Join(rows, "\n"))
	}
}

// What the document allows the server takes, and the other way round.
func TestDocumentAllowsWhatTheServerTakes(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	key, name := doc.Components.Parameters["idempotencyKey"].Value.Schema.Value, doc.Components.Schemas["TopicName"].Value
	for _, text := range []string{"k", "!~", "4f0c-é", "a b", "a\tb", "6f1c6f4e-0f3a-4c57-8c6f-2b8d6a3d1a55", strings.Repeat("k", 255), strings.Repeat("k", 256)} {
		got := d.do("POST", "/v1/topics/orders/events", "a", "Idempotency-Key: "+text)
		if err := key.VisitJSON(text); (err == nil) != (got.status == 200) {
			t.Errorf("key %q: %d, and the document says %v", text, got.status, err)
		}
	}
	for _, text := range []string{"", "a", "a.b_c-D9", "a b", "a/b", "é", strings.Repeat("a", 249), strings.Repeat("a", 250)} {
		body, _ := json.Marshal(map[string]string{"name": text})
		got := d.asJSON("POST", "/v1/topics", string(body))
		if err := name.VisitJSON(text); (err == nil) != (got.status == 201) {
			t.Errorf("name %q: %d, and the document says %v", text, got.status, err)
		}
	}
}

// What the document says of numbers and truths in a URL is what the server takes, to the letter:
// nothing is read as something else.
func TestParametersAreTakenByTheirLetters(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const page, publish = "/v1/topics/orders/partitions/0/events", "/v1/topics/orders/events"
	for _, c := range []struct{ method, path, name string }{
		{"GET", page, "offset"}, {"GET", page, "max"}, {"GET", page, "wait_ms"}, {"GET", "/v1/topics/orders/events", "partition"}, {"GET", "/v1/topics/orders/events", "from"},
		{"POST", publish, "partition"}, {"POST", publish, "timestamp"}, {"POST", publish, "tombstone"}, {"POST", "/v1/topics/orders/batch", "partial"},
	} {
		for _, text := range []string{"", "%2B1", "+1", "-0", "-1", "0x1", "1e0", "1.0", "%D9%A1", "null", "TRUE", "yes", "Earliest"} {
			d.do(c.method, c.path+"?"+c.name+"="+text, "").refused(400, "invalid_request")
		}
	}
	d.follow("/v1/topics/orders/events", "Last-Event-ID: ").refused(400, "invalid_request", "position")
	d.get(page+"?offset=00").want(200, `{"events":[],"next_offset":0,"first_offset":0,"end_offset":0}`)
	d.get(page+"?offset=99999999999999999999").refused(416, "offset_out_of_range")
}

// Where one of two fields is needed, or only one of them may be there, the document and the server
// say so of the same objects.
func TestDocumentSaysWhichFieldsExcludeEachOther(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	body := func(path, method string) *openapi3.Schema {
		return doc.Paths.Value(path).GetOperation(method).RequestBody.Value.Content["application/json"].Schema.Value
	}
	batch, reset, commit := body("/v1/topics/{topic}/batch", "POST"), body("/v1/groups/{group}/offsets", "PUT"), body("/v1/groups/{group}/members/{member}/commit", "POST")
	event := func(json string) string { return `{"events":[` + json + `]}` }
	offset := func(json string) string { return `{"offsets":[` + json + `]}` }
	member := d.join("members", `{"topics":["orders"]}`)
	for _, c := range []struct {
		schema       *openapi3.Schema
		method, path string
		body         string
		taken        bool
	}{
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a"}`), true},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":null}`), true},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value_b64":"YQ==","key":"k"}`), true},
		{batch, "POST", "/v1/topics/orders/batch", event(`{}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"key":"k"}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","value_b64":"YQ=="}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","key":"k","key_b64":"aw=="}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","headers":[{"name":"n","value_b64":"YQ=="},{"name_b64":"YQ==","value":"v"}]}`), true},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","headers":[{"name":"n"}]}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","headers":[{"value":"v"}]}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","headers":[{"name":"n","name_b64":"YQ==","value":"v"}]}`), false},
		{batch, "POST", "/v1/topics/orders/batch", event(`{"value":"a","headers":[{"name":"n","value":"v","value_b64":"YQ=="}]}`), false},
		{reset, "PUT", "/v1/groups/idle/offsets", offset(`{"topic":"orders","offset":0}`), true},
		{reset, "PUT", "/v1/groups/idle/offsets", offset(`{"topic":"orders","timestamp":0}`), true},
		{reset, "PUT", "/v1/groups/idle/offsets", offset(`{"topic":"orders"}`), false},
		{reset, "PUT", "/v1/groups/idle/offsets", offset(`{"topic":"orders","offset":0,"timestamp":0}`), false},
		{commit, "POST", member.path + "/commit", `{}`, true},
		{commit, "POST", member.path + "/commit", `{"next":""}`, true},
		{commit, "POST", member.path + "/commit", `{"next":"","offsets":[]}`, false},
	} {
		var value any
		if err := json.Unmarshal([]byte(c.body), &value); err != nil {
			t.Fatal(err)
		}
		got, err := d.asJSON(c.method, c.path, c.body), c.schema.VisitJSON(value)
		if got.status < 300 != c.taken || (err == nil) != c.taken {
			t.Errorf("%s %s: %d %s, and the document says %v; want taken: %v", c.path, c.body, got.status, got.body, err, c.taken)
		}
	}
}

func TestGroupNamesHaveABound(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.join(strings.Repeat("g", 512), `{"topics":["orders"]}`)
	d.asJSON("POST", "/v1/groups/"+strings.Repeat("g", 513)+"/members", `{"topics":["orders"]}`).refused(400, "invalid_request", "512")
}

func TestMemberNamesHaveABound(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.join("g", `{"topics":["orders"],"client":"`+strings.Repeat("c", 255)+`"}`)
	d.asJSON("POST", "/v1/groups/g/members", `{"topics":["orders"],"client":"`+strings.Repeat("c", 256)+`"}`).refused(413, "too_large", "255")
}

func TestDocumentIsServed(t *testing.T) {
	d := open(t, httpapi.Config{})
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := d.get("/openapi.yaml"); got.status != 200 || got.body != string(want) || got.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d %s, %d bytes", got.status, got.header.Get("Content-Type"), len(got.body))
	}
}

// A name that openapi.yaml allows is one that the server takes, and no other is.
func TestDocumentedNamesAreThoseThatTheServerTakes(t *testing.T) {
	if _, err := document(); err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, httpapi.Config{})
	d.category("order")
	d.queue("mail", "")
	ask := func(method, path, body string) int {
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, len(body))
		answers := d.raw(head + body)
		if len(answers) != 1 {
			t.Fatalf("%s %s: %d answers", method, path, len(answers))
		}
		return answers[0].StatusCode
	}
	param := func(name string) *openapi3.Schema { return doc.Components.Parameters[name].Value.Schema.Value }
	tags := doc.Paths.Value("/v1/categories/{category}/events").Get.Parameters.GetByInAndName("query", "tag").Schema.Value
	forget := doc.Paths.Value("/v1/categories/{category}/subjects/forget").Post.RequestBody.Value.Content["application/json"].Schema.Value
	names := []string{"0-0", "a", ".", "..", "...", ".a", "a.", "/", ";", "a b", "é", "a\x00", "\n", "\x1f", "\x7f", "a\u0080", "~", "-", "_",
		strings.Repeat("a", 100), strings.Repeat("a", 101), strings.Repeat("a", 244), strings.Repeat("a", 245), strings.Repeat("a", 255), strings.Repeat("a", 256)}
	for what, of := range map[string]struct {
		schema *openapi3.Schema
		status func(name string) int
	}{
		"queue":      {param("queue"), func(name string) int { return ask("GET", "/v1/queues/"+pathname.Escape(name), "") }},
		"projection": {param("projection"), func(name string) int { return ask("POST", "/v1/projections/"+pathname.Escape(name)+"/pause", "") }},
		"stream": {param("stream"), func(name string) int {
			return ask("GET", "/v1/categories/order/streams/"+pathname.Escape(name)+"/events", "")
		}},
		"letter": {doc.Paths.Value("/v1/queues/{queue}/dead").Get.Parameters.GetByInAndName("query", "after").Schema.Value, func(name string) int {
			return ask("GET", "/v1/queues/mail/dead?after="+url.QueryEscape(name), "")
		}},
		"message": {doc.Paths.Value("/v1/queues/{queue}/messages").Get.Parameters.GetByInAndName("query", "from").Schema.Value, func(name string) int {
			return ask("GET", "/v1/queues/mail/messages?from="+url.QueryEscape(name), "")
		}},
		"tag": {tags.Items.Value, func(name string) int { return ask("GET", "/v1/categories/order/events?tag="+url.QueryEscape(name), "") }},
		"subject": {forget.Properties["subject"].Value, func(name string) int {
			subject, _ := json.Marshal(map[string]string{"subject": name})
			return ask("POST", "/v1/categories/order/subjects/forget", string(subject))
		}},
	} {
		for _, name := range names {
			allowed, status := of.schema.VisitJSON(name) == nil, of.status(name)
			if taken := status != 400; taken != allowed {
				t.Errorf("%s %.20q: openapi.yaml allows it: %v; the server answers %d", what, name, allowed, status)
			}
		}
	}
	settings := doc.Components.Schemas["NewQueueSettings"].Value
	for body, allowed := range map[string]bool{`{"attempts":0}`: false, `{"attempts":-1}`: true, `{"attempts":1}`: true, `{"rate":0}`: false, `{"rate":-1}`: false, `{"rate":0.5}`: true} {
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			t.Fatal(err)
		}
		status := ask("POST", "/v1/queues", `{"name":"q`+strings.Trim(fmt.Sprintf("%x", body), "")+`","settings":`+body+`}`)
		if says := settings.VisitJSON(value) == nil; says != allowed || (status < 300) != allowed {
			t.Errorf("settings %s: openapi.yaml allows them: %v; the server answers %d", body, says, status)
		}
	}
}
