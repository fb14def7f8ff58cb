package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// between puts a server between the commands and weir. A request that fail answers does not get
// through.
func between(t *testing.T, s *server, fail func(http.ResponseWriter, *http.Request) bool) {
	t.Helper()
	behind := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: s.http}) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fail(w, r) {
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	t.Setenv("WEIR_SERVER", front.URL)
}

func refuseWith(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"urn:weir:problem:%s","title":"Refused","status":%d,"detail":"nothing happened; try again"}`, kind, status)
}

// Claims and acks are repeated until the server has answered, also after the lease. An outage is
// told when it begins and when it ends.
func TestAWorkerTriesAgainUntilTheServerHasAnswered(t *testing.T) {
	s := queueServer(t, "--store", "memory:")
	weir(t, "", "queue", "create", "mail", "--lease", "100ms", "--partitions", "1").want(t, exitOK)
	weir(t, "first", "queue", "send", "mail").want(t, exitOK)
	var claims, acks atomic.Int64
	between(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		tries := &acks
		switch {
		case strings.HasSuffix(r.URL.Path, "/claim"):
			tries = &claims
		case !strings.HasSuffix(r.URL.Path, "/ack"):
			return false
		}
		switch tries.Add(1) {
		case 1:
			refuseWith(w, http.StatusRequestTimeout, "slow_body")
		case 2:
			refuseWith(w, http.StatusTooManyRequests, "too_many_requests")
		case 3:
			refuseWith(w, http.StatusServiceUnavailable, "unavailable")
		case 4:
			panic(http.ErrAbortHandler) // the answer is lost
		default:
			return false
		}
		return true
	})
	r := weir(t, "", "queue", "work", "mail", "-n", "1", "--", "true")
	r.want(t, exitOK, "1 message handled, 0 failed", "weir: claims: refused: nothing happened; try again; trying again", "weir: claims work again",
		"weir: acks, nacks and extensions: refused", "weir: acks, nacks and extensions work again")
	if n := strings.Count(r.err, "\n"); n != 5 {
		t.Errorf("two outages and the end are said in %d lines, want 5:\n%s", n, r.err)
	}
	if strings.Contains(r.err, "lost") {
		t.Errorf("the message was acknowledged: %s", r.err)
	}
	weir(t, "", "queue", "describe", "mail", "--output", "json").want(t, exitOK, `"ready": 0`, `"claimed": 0`)
}

// A receipt that is refused is the answer's problem; older servers answer 207, and the problem is
// in its result.
func TestAWorkerTakesBothAnswersToAReceiptThatIsRefused(t *testing.T) {
	s := queueServer(t, "--store", "memory:")
	weir(t, "", "queue", "create", "mail", "--lease", "1h", "--partitions", "1").want(t, exitOK)
	var status atomic.Int64
	var body atomic.Value
	between(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/ack") {
			return false
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, body.Load())
		return true
	})
	for _, c := range []struct {
		problem string
		want    []string
	}{
		{`{"type":"urn:weir:problem:stale_receipt","title":"T","status":409,"done":true}`, []string{"1 message handled, 0 failed"}},
		{`{"type":"urn:weir:problem:stale_receipt","title":"T","status":409}`, []string{"the ack had no effect: the claim was lost", "0 messages handled"}},
		{`{"type":"urn:weir:problem:bad_receipt","title":"T","status":400}`, []string{"the ack had no effect: the claim was lost", "0 messages handled"}},
	} {
		var p struct{ Status int64 }
		if err := json.Unmarshal([]byte(c.problem), &p); err != nil {
			t.Fatal(err)
		}
		for code, text := range map[int64]string{
			p.Status: c.problem,
			207:      fmt.Sprintf(`{"results":[{"status":%d,"problem":%s}]}`, p.Status, c.problem),
		} {
			weir(t, "a", "queue", "send", "mail").want(t, exitOK)
			status.Store(code)
			body.Store(text)
			weir(t, "", "queue", "work", "mail", "-n", "1", "--", "true").want(t, exitOK, c.want...)
		}
	}
}

// The drain bounds what a worker does after a signal, also where the server is away and leases are
// long.
func TestADrainEndsWithoutAServer(t *testing.T) {
	for _, command := range []string{"cat", "cat; exit 1", "cat; sleep 1000"} {
		s := queueServer(t, "--store", "memory:")
		weir(t, "", "queue", "create", "mail", "--lease", "12h", "--partitions", "1").want(t, exitOK)
		weir(t, "first", "queue", "send", "mail").want(t, exitOK)
		between(t, s, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "ack") {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		out := &lockedBuffer{changed: make(chan struct{}, 1)}
		ended := make(chan int)
		go func() {
			ended <- run(ctx, "test", []string{"queue", "work", "mail", "--drain", "50ms", "--", "sh", "-c", command}, &terminal{in: strings.NewReader(""), out: out, err: out}, nil)
		}()
		out.until(t, "first")
		cancel(stopped{syscall.SIGTERM})
		select {
		case code := <-ended:
			if code != 128+int(syscall.SIGTERM) || !strings.Contains(out.String(), "1 message may come again: the claim was lost, or the server did not confirm the result") {
				t.Errorf("%q: exit code %d: %s", command, code, out)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%q: the worker goes on long after its drain: %s", command, out)
		}
		s.stop()
	}
}

// A command learns of its message's key and headers, whatever their bytes are, and nothing of what
// weir's own environment says of another message.
func TestACommandLearnsOfKeyAndHeaders(t *testing.T) {
	queueServer(t, "--store", "memory:")
	t.Setenv("WEIR_MESSAGE_KEY", "another's")
	t.Setenv("TRACESTATE", "another's")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	weir(t, "", "queue", "create", "mail", "--partitions", "1").want(t, exitOK)
	for _, c := range []struct{ message, want string }{
		{`{"value": "", "key": "k", "headers": [{"name": "traceparent", "value": "` + parent + `"}, {"name": "a", "value": "1"}]}`,
			`k||[{"name":"traceparent","value":"` + parent + `"},{"name":"a","value":"1"}]|` + parent + `||`},
		{`{"value": "", "key_b64": "/w==", "headers": {"tracestate": "x=y"}}`, `|/w==|[{"name":"tracestate","value":"x=y"}]||x=y|`},
		{`{"value": "", "key": "a\u0000b", "headers": [{"name": "a", "value_b64": "/w=="}]}`, `|YQBi|[{"name":"a","value_b64":"/w=="}]|||`},
		{`{"value": ""}`, `|||||`},
		{`{"value": "", "key": "` + strings.Repeat("k", 200_000) + `", "headers": {"a": "` + strings.Repeat("x", 200_000) + `"}}`, `|||||`},
	} {
		weir(t, c.message, "queue", "send", "mail", "--input", "json").want(t, exitOK)
		r := weir(t, "", "queue", "work", "mail", "-n", "1", "--", "sh", "-c",
			`printf '%s|%s|%s|%s|%s|' "$WEIR_MESSAGE_KEY" "$WEIR_MESSAGE_KEY_B64" "$WEIR_MESSAGE_HEADERS" "$TRACEPARENT" "$TRACESTATE"`)
		r.want(t, exitOK, "1 message handled")
		if r.out != c.want {
			t.Errorf("the command of %.100s learned\n%.500s, want\n%s", c.message, r.out, c.want)
		}
	}
}

// A command that runs for too long is killed, with all that it started, and its attempt has failed.
func TestACommandHasATimeOfItsOwn(t *testing.T) {
	queueServer(t, "--store", "memory:")
	weir(t, "", "queue", "create", "mail", "--attempts", "1", "--partitions", "1").want(t, exitOK)
	weir(t, "first", "queue", "send", "mail").want(t, exitOK)
	path, _ := pipe(t)
	weir(t, "", "queue", "work", "mail", "-n", "1", "--max-time", "50ms", "--", "sh", "-c", "echo begun >&2; cat "+path+"; true").
		want(t, exitOK, "0 messages handled, 1 failed", "attempt 1: the command ran for longer than --max-time 50ms, and was killed")
	var page struct{ Letters []struct{ Error string } }
	if err := json.Unmarshal([]byte(weir(t, "", "queue", "peek", "mail", "--dead", "--output", "json").out), &page); err != nil || len(page.Letters) != 1 {
		t.Fatal(err, page)
	}
	if want := "the command ran for longer than --max-time 50ms, and was killed"; !strings.HasPrefix(page.Letters[0].Error, want) {
		t.Errorf("the dead letter says %q, want %q", page.Letters[0].Error, want)
	}
	weir(t, "second", "queue", "send", "mail").want(t, exitOK)
	weir(t, "", "queue", "work", "mail", "-n", "1", "--max-time", "1h", "--", "cat").want(t, exitOK, "second", "1 message handled")
	weir(t, "", "queue", "work", "mail", "--max-time", "0s", "--", "cat").want(t, exitUsage, "--max-time must be more than 0", "leave the flag out")
	weir(t, "", "queue", "work", "mail", "--lease", "10ms", "--", "cat").want(t, exitUsage, "--lease 10ms: it must be from 100ms to 12h0m0s")
}
