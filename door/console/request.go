package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/pathname"
	"github.com/weir-log/weir/internal/proxy"
)

// answerMax bounds an answer of the API that a page is made of.
const answerMax = 16 << 20

// problem is an answer of the API that is an error (RFC 9457).
type problem struct {
	Status    int    `json:"status"`
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
}

func (p *problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// path makes a path of the API; names are escaped.
func path(format string, names ...string) string {
	escaped := make([]any, len(names))
	for i, n := range names {
		escaped[i] = pathname.Escape(n)
	}
	return fmt.Sprintf(format, escaped...)
}

// pagePath makes a path of the console. Names are escaped.
func pagePath(format string, names ...string) string {
	escaped := make([]any, len(names))
	for i, n := range names {
		escaped[i] = segment(n)
	}
	return fmt.Sprintf(format, escaped...)
}

// segment is a name in a path of the console. A ~ is put before names that cannot be a segment by
// themselves: a browser takes . and .. for steps to another path, even if they are escaped (WHATWG
// URL, 4.1, double-dot URL path segment), and http.ServeMux takes %2F alone for the end of a path.
// A name that begins with ~ gets one more, because named removes one.
func segment(name string) string {
	if name == "." || name == ".." || name == "/" || strings.HasPrefix(name, "~") {
		name = "~" + name
	}
	return url.PathEscape(name)
}

// named returns the name in a wildcard of the page's path, without the ~ that segment may have put
// before it.
func (v *visit) named(wildcard string) string {
	return strings.TrimPrefix(v.r.PathValue(wildcard), "~")
}

func urlQueryEscape(text string) string { return url.QueryEscape(text) }

// get asks the API, and decodes its answer; into may be nil.
func (v *visit) get(path string, into any) error { return v.do(http.MethodGet, path, nil, into) }

// do sends a request to the API, with a JSON body unless it is nil, and decodes the answer.
func (v *visit) do(method, path string, body, into any, headers ...string) error {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the request %s %s: %w", method, path, err)
		}
	}
	r, err := v.request(v.r.Context(), method, path, encoded)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := &answer{header: http.Header{}}
	v.c.cfg.API.ServeHTTP(w, r)
	switch {
	case w.cut:
		return &problem{Status: http.StatusRequestEntityTooLarge, Title: "The answer is too large for a page", Detail: "Ask for less at a time, or download it."}
	case w.status >= http.StatusMultipleChoices: // a redirect is an error here as well: what was asked for was not done
		return w.problem()
	case into == nil || w.body.Len() == 0:
		return nil
	}
	if err := json.Unmarshal(w.body.Bytes(), into); err != nil {
		return fmt.Errorf("decode the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// request makes a request to the API as the browser's own: with its credentials, from its address.
func (v *visit) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request %s %s: %w", method, path, err)
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = v.r.Host, v.r.RemoteAddr, v.r.TLS, r.URL.RequestURI()
	for name, given := range v.r.Header {
		if proxy.Header(name) {
			r.Header[name] = given
		}
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.session.Authorization != "" {
		r.Header.Set("Authorization", v.session.Authorization)
	}
	return r, nil
}

// may reports whether the user may make a request, by its method and path. Pages show a button only
// if so, and the overview lists a group, a queue or a projection only if so.
func (v *visit) may(method, path string) bool {
	r, err := v.request(v.r.Context(), method, path, nil)
	return err == nil && v.c.cfg.API.May(r)
}

// operates reports whether the reader may see what is about the whole process.
func (v *visit) operates() bool {
	r, err := v.request(v.r.Context(), http.MethodGet, "/metrics", nil)
	return err == nil && v.c.cfg.API.MayOperate(r)
}

// answer keeps an answer of the API.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	cut    bool // it had more than answerMax bytes
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.cut = a.cut || a.body.Len()+len(b) > answerMax; a.cut {
		return 0, fmt.Errorf("the answer has more than %d bytes", answerMax)
	}
	return a.body.Write(b)
}

// SetWriteDeadline is for http.ResponseController: what is kept in memory needs no deadline.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// Flush is for http.ResponseController.
func (a *answer) Flush() {}

// problem returns the problem that the body of an answer describes, if the answer's status is that
// of an error. If the body has no title, the title is the text of the status.
func (a *answer) problem() *problem {
	p := &problem{Status: a.status}
	if json.Unmarshal(a.body.Bytes(), p) != nil || p.Title == "" {
		p.Title = http.StatusText(a.status)
	}
	return p
}

// query makes the query part of a URL. pairs are names, each followed by its value; a name whose
// value is empty is left out.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}
