package console_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/console"
	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/metric"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/broker"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// server is a weir with a console, on a store in memory.
type server struct {
	t      testing.TB
	at     string // its URL
	keys   *apikey.Keys
	store  eventlog.Store
	logger *slog.Logger
	groups *group.Coordinator
	plot   func() // lets the console measure
}

// sealing is the key of the sessions of all servers of a test.
var sealing = []byte("0123456789abcdef0123456789abcdef")

func serve(t testing.TB) *server { return serveOn(t, memory.New()) }

func serveOn(t testing.TB, store eventlog.Store) *server {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	n, err := node.Open(t.Context(), store, node.Config{Logger: logger, Observer: metric.New(registry, "test")})
	if err != nil {
		t.Fatal(err)
	}
	keys := apikey.New(everystore.Direct(store), logger)
	stored := prometheus.NewRegistry()
	metric.WatchQueues(stored, func(ctx context.Context) (all []metric.Queue, delayed int64, err error) {
		counts, delayed, err := n.Queues.Counts(ctx)
		for _, c := range counts {
			all = append(all, metric.Queue{Name: c.Name, Oldest: c.Oldest, Messages: map[string]int64{"ready": c.Ready, "claimed": c.Claimed, "waiting": c.Waiting, "dead": c.Dead}})
		}
		return all, delayed, err
	})
	history := console.NewHistory(registry, stored)
	history.Watch(n.Log)
	api := httpapi.New(httpapi.Config{
		Log: n.Log, Groups: n.Groups, Publisher: n.Publisher, Queues: n.Queues, Categories: n.Streams, Projections: n.Projections,
		Keys: keys, Users: user.New(everystore.Direct(store), logger), ACLs: acl.New(everystore.Direct(store), logger), Quotas: quota.New(everystore.Direct(store), logger), Ready: n.Log.Healthy, Metrics: registry, Logger: logger,
		Console: func(api *httpapi.Inside) http.Handler {
			return console.New(console.Config{API: api, Version: "test", History: history, Ready: n.Log.Healthy, Logger: logger,
				Secret: func(context.Context) ([]byte, error) { return sealing, nil }})
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	logCtx, stopLog := context.WithCancel(context.Background())
	var doors, below sync.WaitGroup
	for _, part := range n.Uses() {
		below.Go(func() { _ = part.Run(logCtx) })
	}
	below.Go(func() { _ = n.Log.Run(logCtx) })
	below.Go(func() { _ = n.Queues.Run(logCtx) })
	doors.Go(func() {
		if err := api.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); doors.Wait(); stopLog(); below.Wait() })
	return &server{t: t, at: "http://" + listener.Addr().String(), keys: keys, store: store, logger: logger, groups: n.Groups, plot: func() {
		history.Beside(twoBrokers(t, n.Log, history))
		metric.WatchGroups(stored, func(ctx context.Context) ([]metric.Group, error) {
			if _, err := n.Log.Topic(ctx, "orders"); err != nil {
				return nil, nil
			}
			return []metric.Group{{Name: "billing", Lag: map[string]int64{"orders": 100}}}, nil
		})
		doors.Go(func() { _ = history.Run(ctx) })
	}}
}

// twoBrokers makes this process a broker, and one more that does something, too.
func twoBrokers(t testing.TB, log *eventlog.Log, history *console.History) func() *broker.View {
	t.Helper()
	var done atomic.Int64
	one := broker.New(log, broker.Config{Host: "one", Addresses: map[string]string{"plaintext": "one.example:9092"}, Counters: history.Counters})
	two := broker.New(log, broker.Config{Host: "two", Addresses: map[string]string{"plaintext": "two.example:9092"}, Counters: func() *broker.Counters {
		n := float64(done.Add(1))
		return &broker.Counters{Records: 100 * n, Bytes: 30_000 * n, Fetched: 90_000 * n, Flushes: []broker.Bucket{{UpTo: 0.01, Count: n}}}
	}})
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); running.Wait() })
	for _, b := range []*broker.Registry{two, one} {
		if err := b.Join(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = b.Run(ctx) })
	}
	return one.View
}

// key makes an API key.
func (s *server) key(access ...apikey.Access) (key apikey.Key, secret string) {
	s.t.Helper()
	key, secret, err := s.keys.Create(s.t.Context(), apikey.Spec{Name: "test", Access: access, AllTopics: true, AllGroups: true, AllQueues: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return key, secret
}

// api sends a request to the API, and fails the test unless it succeeds.
func (s *server) api(method, path, body string) string {
	s.t.Helper()
	r, err := http.NewRequest(method, s.at+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d, %v: %s", method, path, answer.StatusCode, err, text)
	}
	return string(text)
}

// fill makes a topic, a group, a queue with dead letters and a schedule, and a stream.
func (s *server) fill() {
	s.t.Helper()
	s.api("POST", "/v1/topics", `{"name": "orders", "partitions": 2}`)
	var events []string
	for i := range 120 {
		events = append(events, fmt.Sprintf(`{"key": "c%d", "partition": 0, "timestamp": %d, "value": {"order": %d}, "headers": {"trace": "t%d"}}`, i%7, 1_700_000_000_000+1000*i, i, i))
	}
	s.api("POST", "/v1/topics/orders/batch", `{"events": [`+strings.Join(events, ",")+`]}`)
	s.api("PUT", "/v1/groups/billing/offsets", `{"offsets": [{"topic": "orders", "partition": 0, "offset": 20}]}`)
	s.api("POST", "/v1/queues", `{"name": "mails", "partitions": 1, "settings": {"attempts": 1}}`)
	for i := range 4 {
		s.api("POST", "/v1/queues/mails/batch", fmt.Sprintf(`{"messages": [{"key": "k%d", "value": {"to": "user%d@example.org"}}]}`, i, i))
	}
	claimed := s.api("POST", "/v1/queues/mails/claim", `{"max": 2, "worker": "w1"}`)
	for _, m := range regexp.MustCompile(`"receipt":"([^"]+)"`).FindAllStringSubmatch(claimed, -1) {
		s.api("POST", "/v1/queues/mails/nack", `{"receipts": ["`+m[1]+`"], "error": "550 mailbox unavailable"}`)
	}
	s.api("PUT", "/v1/queues/mails/schedules/daily", `{"cron": "30 8 * * MON-FRI", "zone": "Europe/Berlin", "message": {"value": "report"}}`)
	s.api("POST", "/v1/categories", `{"name": "accounts"}`)
	s.api("POST", "/v1/categories/accounts/streams/acc-1/events", `{"events": [
		{"type": "Opened", "value": {"owner": "Ada"}, "tags": ["owner:ada"], "metadata": {"correlation-id": "c-1"}},
		{"type": "Deposited", "value": {"amount": 100}, "metadata": {"causation-id": "e-0"}}]}`)
}

// browser keeps cookies, and does not follow redirects by itself.
type browser struct {
	*server
	client *http.Client
}

func (s *server) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{s, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// page is an answer of the console.
type page struct {
	status   int
	text     string
	header   http.Header
	location string
}

func (b *browser) send(r *http.Request) page {
	b.t.Helper()
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{answer.StatusCode, string(text), answer.Header, answer.Header.Get("Location")}
}

func (b *browser) get(path string) page {
	b.t.Helper()
	r, err := http.NewRequest(http.MethodGet, b.at+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.send(r)
}

var tokenField = regexp.MustCompile(`name="token" value="([^"]+)"`)

// post sends a form with the session's token.
func (b *browser) post(path string, pairs ...string) page {
	b.t.Helper()
	token := tokenField.FindStringSubmatch(b.get("/console/login").text)
	if token == nil {
		b.t.Fatal("the login has no token")
	}
	return b.postToken(path, token[1], pairs...)
}

func (b *browser) postToken(path, token string, pairs ...string) page {
	b.t.Helper()
	form := url.Values{"token": {token}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	r, err := http.NewRequest(http.MethodPost, b.at+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.send(r)
}

// login logs in with an API key.
func (b *browser) login(key string) {
	b.t.Helper()
	if p := b.post("/console/login", "key", key); p.status != http.StatusSeeOther {
		b.t.Fatalf("login: %d %s", p.status, p.text)
	}
}

// letters returns the dead letters' ids of the queue mails.
func (s *server) letters() (ids []string) {
	s.t.Helper()
	for _, m := range regexp.MustCompile(`"letter":"([^"]+)"`).FindAllStringSubmatch(s.api("GET", "/v1/queues/mails/dead", ""), -1) {
		ids = append(ids, m[1])
	}
	return ids
}
