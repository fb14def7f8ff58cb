package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/weir-log/weir/door/httpapi"
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

// documented is a transport that holds what passes to openapi.yaml: answers always, and requests where the answer is that they were right.
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
