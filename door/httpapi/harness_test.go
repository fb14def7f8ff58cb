package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// door is an HTTP door on a store, for one test, and a client that holds every exchange to
// openapi.yaml.
type door struct {
	t          testing.TB
	log        *eventlog.Log
	groups     *group.Coordinator
	categories *stream.Streams
	addr       string
	client     *http.Client
	dial       dialer
	said       *said
	server     *httpapi.Server
	cancel     func() // begins to stop it
	stop       func() // returns when it has stopped
}

// said is a log that a test can read.
type said struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *said) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

func open(t testing.TB, cfg httpapi.Config) *door { return openOn(t, memory.New(), cfg) }

func openOn(t testing.TB, store eventlog.Store, cfg httpapi.Config) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return openAt(t, store, cfg, l, new(net.Dialer).DialContext)
}

// bubble runs a test in a bubble of fake time, with a door on a store in memory. Its connections
// are in memory, too.
func bubble(t *testing.T, cfg httpapi.Config, test func(t *testing.T, d *door)) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		d := openAt(t, memory.New(), cfg, l, l.dial)
		defer d.stop()
		test(t, d)
	})
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func openAt(t testing.TB, store eventlog.Store, cfg httpapi.Config, l net.Listener, dial dialer) *door {
	t.Helper()
	return openSeen(t, store, cfg, nil, l, dial)
}

// openSeen opens a door on a log that somebody observes.
func openSeen(t testing.TB, store eventlog.Store, cfg httpapi.Config, observer eventlog.Observer, l net.Listener, dial dialer) *door {
	t.Helper()
	d := &door{t: t, addr: l.Addr().String(), dial: dial, said: new(said)}
	var err error
	logger := slog.New(slog.NewTextHandler(d.said, nil))
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	if d.log, err = eventlog.Open(ctx, store, eventlog.Config{Logger: logger, Observer: observer, Poll: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	d.groups = group.New(d.log, group.Config{InitialDelay: -1, ConsumerHeartbeat: 200 * time.Millisecond, Logger: logger})
	cfg.Log, cfg.Groups, cfg.Publisher, cfg.Logger = d.log, d.groups, publish.New(d.log, publish.Config{Logger: logger}), logger
	if cfg.Ready == nil {
		cfg.Ready = d.log.Healthy
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	logCtx, stopLog := context.WithCancel(context.Background())
	var running sync.WaitGroup
	cfg.Queues = queue.New(d.log, cfg.Publisher, queue.Config{Logger: logger})
	d.categories = stream.New(d.log, stream.Config{Logger: logger})
	cfg.Categories = d.categories
	cfg.Projections = projection.New(d.log, d.categories, d.groups, nil, logger)
	for _, run := range []func(context.Context) error{d.log.Run, d.groups.Run, cfg.Publisher.Run, cfg.Queues.Run, cfg.Categories.Run} {
		running.Go(func() {
			if err := run(logCtx); err != nil {
				t.Error(err)
			}
		})
	}
	served := make(chan error, 1)
	d.server = httpapi.New(cfg)
	go func() { served <- d.server.Serve(ctx, l) }()
	transport := &http.Transport{DisableCompression: true, DialContext: dial}
	d.client = &http.Client{Transport: &documented{t: t, next: transport}, Timeout: 5 * time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // no test goes by an old path
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve returns %v", err)
		}
		transport.CloseIdleConnections()
		stopLog()
		running.Wait()
	})
	t.Cleanup(d.stop)
	return d
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// stores runs a test on each store.
func stores(t *testing.T, test func(t *testing.T, open func() eventlog.Store)) {
	t.Run("memory", func(t *testing.T) {
		store := memory.New()
		test(t, func() eventlog.Store { return store })
	})
	for _, kind := range everystore.Durable() {
		t.Run(kind, func(t *testing.T) {
			url := everystore.URL(t, kind)
			test(t, func() eventlog.Store { return everystore.Open(t, url) })
		})
	}
}

func openPostgres(t testing.TB, url string) eventlog.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (d *door) topic(name string, partitions int) {
	d.t.Helper()
	if _, err := d.log.CreateTopic(context.Background(), eventlog.TopicSpec{Name: name, Partitions: partitions, Internal: eventlog.InternalTopic(name)}); err != nil {
		d.t.Fatal(err)
	}
}

// answer is a response that was read whole.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// do sends a request. Headers are given as "Name: value".
func (d *door) do(method, path, body string, headers ...string) answer {
	d.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+d.addr+path, content)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{d.t, response.StatusCode, response.Header, string(read)}
}

func (d *door) get(path string, headers ...string) answer {
	d.t.Helper()
	return d.do("GET", path, "", headers...)
}

// asJSON sends JSON.
func (d *door) asJSON(method, path, body string, headers ...string) answer {
	d.t.Helper()
	return d.do(method, path, body, append(headers, "Content-Type: application/json")...)
}

// want sees that the answer is as expected. A body is compared as JSON where it is JSON.
func (a answer) want(status int, body string) answer {
	a.t.Helper()
	if a.status != status || !same(a.body, body) {
		a.t.Errorf("%d %s\nwant %d %s", a.status, a.body, status, body)
	}
	return a
}

// refused sees that the answer is a problem of a kind, with all these words in it.
func (a answer) refused(status int, kind string, words ...string) answer {
	a.t.Helper()
	var p struct {
		Type   string
		Status int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != status || p.Status != status ||
		p.Type != "urn:weir:problem:"+kind || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Errorf("%d %s %s\nwant %d %s", a.status, a.header.Get("Content-Type"), a.body, status, kind)
	}
	for _, word := range words {
		if !strings.Contains(a.body, word) {
			a.t.Errorf("%s\ndoes not say %q", a.body, word)
		}
	}
	return a
}

// same compares two texts, as JSON where they are.
func same(a, b string) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil {
		return x.String() == y.String()
	}
	return a == b
}
