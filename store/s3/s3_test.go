package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/store/storetest"
)

func TestMain(m *testing.M) {
	s3test.Credentials()
	storetest.Work(openURL)
	os.Exit(m.Run())
}

func openURL(ctx context.Context, place string) (eventlog.Store, error) {
	return Open(ctx, place, Options{})
}

// refusal is an error of S3.
type refusal struct {
	status int
	code   string
}

// server answers the few requests of S3 that the store makes, from a fake.
type server struct {
	given
	fake        *fake
	lose        atomic.Pointer[func(r *http.Request) bool] // true: the answer is lost
	refuses     atomic.Pointer[refusal]                    // how every request is answered
	connections sync.WaitGroup                             // that are open
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	fail := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code)
	}
	if lose := s.lose.Load(); lose != nil && (*lose)(r) {
		defer panic(http.ErrAbortHandler)
	}
	if no := s.refuses.Load(); no != nil {
		fail(no.status, no.code)
		return
	}
	switch {
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("If-None-Match") != "*" {
			fail(http.StatusBadRequest, "InvalidRequest")
			return
		}
		if _, err := s.put(r.Context(), key, body); err != nil {
			fail(http.StatusPreconditionFailed, "PreconditionFailed")
		}
	case r.Method == http.MethodDelete:
		_ = s.remove(r.Context(), key)
		w.WriteHeader(http.StatusNoContent)
	case key == "":
		q := r.URL.Query()
		limit, _ := strconv.Atoi(q.Get("max-keys"))
		items, _, _ := s.list(r.Context(), q.Get("prefix"), q.Get("start-after"), limit)
		type content struct {
			Key          string
			Size         int64
			LastModified string
		}
		var out struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Contents []content
		}
		for _, it := range items {
			out.Contents = append(out.Contents, content{it.key, it.size, it.modified.UTC().Format("2006-01-02T15:04:05.000Z")})
		}
		text, _ := xml.Marshal(out)
		_, _ = w.Write(text)
	default:
		body, _, err := s.get(r.Context(), key, 0, -1)
		if err != nil {
			fail(http.StatusNotFound, "NoSuchKey")
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

func serve(t *testing.T) (*server, string) {
	t.Helper()
	f := newFake()
	s := &server{fake: f, given: given{f, &clock{}}}
	at := httptest.NewUnstartedServer(s)
	at.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.connections.Add(1)
		case http.StateClosed:
			s.connections.Done()
		}
	}
	at.Start()
	t.Cleanup(at.Close)
	return s, "s3://bucket/logs?path_style=true&linger=0s&poll=0s&verify=0s&endpoint=" + url.QueryEscape(at.URL)
}

// TestStore is the contract over HTTP, with several processes.
func TestStore(t *testing.T) {
	var fakes sync.Map
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			s, address := serve(t)
			fakes.Store(address, s.fake)
			return address
		},
		Open: openURL,
		Backup: func(t *testing.T, place string) func() {
			found, _ := fakes.Load(place)
			f := found.(*fake)
			f.Mu.Lock()
			defer f.Mu.Unlock()
			copied := maps.Clone(f.Objects)
			return func() {
				f.Mu.Lock()
				defer f.Mu.Unlock()
				f.Objects = maps.Clone(copied)
			}
		},
	})
}

// An answer that the network loses is resolved, too.
func TestAConnectionThatBreaksAfterThePut(t *testing.T) {
	server, address := serve(t)
	opened, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	mustPublish(t, opened, "a")
	var lost atomic.Bool
	lose := func(r *http.Request) bool { return r.Method == http.MethodPut && lost.CompareAndSwap(false, true) }
	server.lose.Store(&lose)
	mustPublish(t, opened, "b", "c")
	if !lost.Load() {
		t.Error("no answer was lost")
	}
	expect(t, opened, "a", "b", "c")
	findings, err := Examine(t.Context(), address)
	if err != nil || !strings.Contains(fmt.Sprint(findings), "3 commits") {
		t.Errorf("examine: %+v, %v", findings, err)
	}
}

func TestCloseLeavesNoConnection(t *testing.T) {
	server, address := serve(t)
	opened, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, opened, "a")
	expect(t, opened, "a")
	if stats := opened.Stats(); stats.Puts < 10 || stats.Gets < 1 || stats.Lists < 1 || stats.Deletes != 2 {
		t.Errorf("%+v: want at least the 10 puts, a list and 2 deletions of a start, and one get", stats)
	}
	if _, err := Examine(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		server.connections.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("connections are open after Close")
	}
}

func TestAddresses(t *testing.T) {
	at, err := parse("s3://b/some/where?endpoint=http://h:1&region=r&path_style=true&linger=10ms&poll=2s&alone=true&sse=AES256&storage_class=STANDARD_IA&grace=2h&verify=1m&flush_bytes=1048576")
	want := place{bucketName: "b", prefix: "some/where/", endpoint: "http://h:1", region: "r", pathStyle: true, sse: "AES256", class: "STANDARD_IA",
		linger: 10 * time.Millisecond, flush: 1 << 20, poll: 2 * time.Second, verify: time.Minute, grace: 2 * time.Hour, alone: true}
	if err != nil || at != want {
		t.Errorf("%+v, %v", at, err)
	}
	for _, address := range []string{"s3:", "s3:///p", "s3://key:secret@b/p", "s3://b?linger=1", "s3://b?grace=1s", "s3://b?flush_bytes=1", "s3://b?flush_bytes=16MiB", "s3://b?linnger=1s", "s3://b?endpoint=h:1", "s3://b?sse=x", "s3://b?alone=yes"} {
		if _, err := parse(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
