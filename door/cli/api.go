package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/internal/pathname"
)

// serverFlags say which server to speak HTTP to, and as whom.
type serverFlags struct {
	loginFlags
	Server  string   `help:"The server's HTTP address. Default: ${default}." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Timeout duration `help:"Give up on a server that does not answer for this long. The server waits up to 20s for its store." default:"30s"`
}

// apiAnswerMax bounds what is read of one answer.
const apiAnswerMax = 256 << 20

// apiProblem is an error of the server, as problem+json has it.
type apiProblem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Done   bool   `json:"done"`
}

func (p *apiProblem) Error() string {
	return strings.ToLower(p.Title[:min(len(p.Title), 1)]) + p.Title[min(len(p.Title), 1):] + ": " + p.Detail
}

func (p *apiProblem) is(kind string) bool { return p.Type == "urn:weir:problem:"+kind }

// lostAnswer is the error of a request that may have changed something: it was sent, and its answer
// did not come.
type lostAnswer struct {
	server string
	err    error
}

func (l *lostAnswer) Error() string {
	return fmt.Sprintf("no answer came from the server at %s: %v. The change may have been made, or not", l.server, l.err)
}

func (l *lostAnswer) Unwrap() error { return l.err }

// apiPath joins parts of a URL's path, and escapes them.
func apiPath(parts ...string) string {
	for i, part := range parts {
		parts[i] = pathname.Escape(part)
	}
	return "/v1/" + strings.Join(parts, "/")
}

// ask sends a request, with a body as JSON unless it is nil, and reads the answer into out. It
// gives up after --timeout plus wait, the server's own wait.
func (f *serverFlags) ask(ctx context.Context, method, path string, body, out any, wait time.Duration) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	return f.send(ctx, method, path, "application/json", content, out, wait)
}

// send is ask for a body of any type, and with headers: pairs of a name and a value. If out is a
// *[]byte, the answer need not be JSON.
func (f *serverFlags) send(ctx context.Context, method, path, media string, content []byte, out any, wait time.Duration, headers ...string) error {
	base, err := url.Parse(f.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return usage(fmt.Errorf("--server %q is not a URL", f.Server), "write http://HOST:PORT, such as http://127.0.0.1:8080")
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(f.Timeout)+wait)
	defer cancel()
	var sent atomic.Bool
	waiting = httptrace.WithClientTrace(waiting, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	r, err := http.NewRequestWithContext(waiting, method, strings.TrimSuffix(f.Server, "/")+path, bytes.NewReader(content))
	if err != nil {
		return usage(fmt.Errorf("--server %q: %w", f.Server, err), "")
	}
	if len(content) > 0 {
		r.Header.Set("Content-Type", media)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	name, password, err := f.who()
	switch {
	case err != nil:
		return err
	case name != "":
		r.SetBasicAuth(name, password)
	case f.APIKey != "":
		r.Header.Set("Authorization", "Bearer "+f.APIKey)
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return f.away(ctx, method, sent.Load(), err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(io.LimitReader(response.Body, apiAnswerMax))
	if err != nil {
		return f.away(ctx, method, true, err)
	}
	if response.StatusCode >= 300 {
		p := &apiProblem{}
		if json.Unmarshal(read, p) != nil || p.Type == "" {
			if method != http.MethodGet && response.StatusCode >= 500 { // the answer is a proxy's, which may have passed the request on
				return &lostAnswer{f.Server, errors.New(response.Status)}
			}
			return unreachable(fmt.Errorf("%s answered %s, but the answer is not from weir", f.Server, response.Status), "is --server the HTTP address of weir serve?")
		}
		if method != http.MethodGet && p.Status >= 500 && p.Status != http.StatusServiceUnavailable && !p.is("outcome_unknown") {
			return &lostAnswer{f.Server, p} // the request failed on the way, and the answer does not say what it did
		}
		return p
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = read
		return nil
	}
	if err := json.Unmarshal(read, out); err != nil {
		return unreachable(fmt.Errorf("%s answered, but not with JSON: %w", f.Server, err), "is --server the HTTP address of weir serve?")
	}
	return nil
}

// away is the error of a request without an answer.
func (f *serverFlags) away(ctx context.Context, method string, sent bool, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("timeout (--timeout)")
	}
	if sent && method != http.MethodGet {
		return &lostAnswer{f.Server, cause(err)}
	}
	return unreachable(fmt.Errorf("no answer from a server at %s: %w", f.Server, cause(err)), "start one with `weir serve`, or give the address of another with --server URL")
}

// answer adds an exit code and a hint to an error about a queue or a stream.
func (f *serverFlags) answer(tried string, err error) error {
	var lost *lostAnswer
	if errors.As(err, &lost) {
		return unreachable(fmt.Errorf("%s: %w", tried, err), "check whether the change was made before you repeat it; --timeout sets how long to wait for an answer")
	}
	var p *apiProblem
	if !errors.As(err, &p) {
		return err
	}
	err = fmt.Errorf("%s: %w", tried, p)
	hint := ""
	switch {
	case p.is("unauthorized"):
		hint = "set the variable WEIR_API_KEY to a key (`weir key create` creates one), or give --user and --password-file"
	case p.is("forbidden"):
		hint = "`weir key list` shows which queues and topics a key can access"
	case p.is("unknown_queue"):
		err, hint = fmt.Errorf("%s: the queue does not exist", tried), "`weir queue list` lists the queues; `weir queue create NAME` creates one"
	case p.is("unknown_schedule"):
		err, hint = fmt.Errorf("%s: the schedule does not exist", tried), "`weir queue schedule list QUEUE` lists the schedules"
	case p.is("unknown_category"):
		err, hint = fmt.Errorf("%s: the category does not exist", tried), "`weir stream category list` lists the categories; `weir stream category create NAME` creates one"
	case p.is("unknown_stream"):
		err, hint = fmt.Errorf("%s: the stream does not exist", tried), "`weir stream list CATEGORY` lists the streams"
	case p.is("unknown_projection"):
		err, hint = fmt.Errorf("%s: there is no such projection", tried), "`weir projection list` lists the projections; a program that calls Project creates one"
	case p.is("group_not_empty"):
		hint = "stop the programs that work on it"
	case p.is("unknown_snapshot"):
		err, hint = fmt.Errorf("%s: the snapshot does not exist", tried), "`weir stream snapshot CATEGORY STREAM --save VERSION` saves one"
	case p.is("category_exists"):
		err, hint = fmt.Errorf("%s: a category or a topic of this name already exists", tried), "`weir stream category list` lists the categories; with --if-not-exists the command succeeds if the category exists"
	case p.is("version_conflict"):
		hint = "`weir stream read CATEGORY STREAM` shows what was appended in the meantime; --expect sets the expected version"
	case p.is("boundary_conflict"):
		hint = "`weir stream tagged CATEGORY TAG... --output json` reads the events and the boundary again"
	case p.is("stream_archived"):
		hint = "`weir stream unarchive CATEGORY STREAM` opens it again"
	case p.is("queue_exists"):
		err, hint = fmt.Errorf("%s: a queue of this name already exists", tried), "`weir queue describe NAME` shows it; with --if-not-exists the command succeeds if the queue exists"
	}
	switch {
	case p.is("unavailable"), p.is("overloaded"), p.is("outcome_unknown"):
		return unreachable(err, hint)
	case p.Status == http.StatusBadRequest:
		return usage(err, hint)
	}
	return failed(err, cmp.Or(hint, ""))
}
