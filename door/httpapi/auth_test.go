package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/stream"
	"github.com/weir-log/weir/use/user"
)

// locked is a door that asks for keys, and its log lines.
type locked struct {
	http.Handler
	server     *Server
	store      eventlog.Store
	keys       *apikey.Keys
	users      *user.Users
	acls       *acl.ACLs
	categories *stream.Streams
	said       *bytes.Buffer
}

// lock makes a door on the store in memory, without a listener. It has the topics orders.eu and
// users.
func lock(t *testing.T, cfg Config) *locked {
	t.Helper()
	store, said := memory.New(), &bytes.Buffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the log ended with %v", err)
		}
	})
	for _, topic := range []string{"orders.eu", "users"} {
		if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: topic, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Log, cfg.Groups, cfg.Publisher = log, group.New(log, group.Config{Logger: cfg.Logger}), publish.New(log, publish.Config{Logger: cfg.Logger})
	cfg.Queues = queue.New(log, cfg.Publisher, queue.Config{Logger: cfg.Logger})
	cfg.Categories = stream.New(log, stream.Config{Logger: cfg.Logger})
	cfg.Projections = projection.New(log, cfg.Categories, cfg.Groups, nil, cfg.Logger)
	working := make(chan error)
	go func() { working <- cfg.Queues.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-working; err != nil {
			t.Errorf("the queues ended with %v", err)
		}
	})
	cfg.Users, cfg.ACLs, cfg.Quotas = user.New(everystore.Direct(store), cfg.Logger), acl.New(everystore.Direct(store), cfg.Logger), quota.New(everystore.Direct(store), cfg.Logger)
	cfg.Keys, cfg.Metrics, cfg.Ready = apikey.New(everystore.Direct(store), cfg.Logger), prometheus.NewRegistry(), func() error { return nil }
	s := New(cfg)
	t.Cleanup(s.members.Close)
	watched, unwatch := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { s.streams.watch(watched) })
	t.Cleanup(func() { unwatch(); watching.Wait() })
	return &locked{s.guard(&net.TCPAddr{IP: net.IPv4zero}), s, store, cfg.Keys, cfg.Users, cfg.ACLs, cfg.Categories, said}
}

// key makes an API key, for everything unless it says for what.
func (l *locked) key(t *testing.T, s apikey.Spec) (id, secret string) {
	t.Helper()
	s.Name = "test"
	s.AllTopics = len(s.Topics)+len(s.TopicNames)+len(s.Queues)+len(s.QueueNames) == 0 && !slices.Equal(s.Access, []apikey.Access{apikey.Metrics})
	s.AllGroups = s.AllTopics && len(s.Groups)+len(s.GroupNames) == 0
	key, secret, err := l.keys.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return key.ID, secret
}

const (
	elsewhere = "192.0.2.7:1234"
	hereToo   = "127.0.0.1:1234"
)

// ask sends a request as if from an address. Headers are given in pairs.
func (l *locked) ask(from, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // of a stream that should not have begun
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1:8080"+target, strings.NewReader(body))
	r.RemoteAddr = from
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

const (
	ordersPage    = "/v1/topics/orders.eu/partitions/0/events"
	usersPage     = "/v1/topics/users/partitions/0/events"
	ordersPublish = "/v1/topics/orders.eu/events"
)

func TestKeysOpenWhatTheyAreFor(t *testing.T) {
	door := lock(t, Config{})
	_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}, Topics: []string{"orders."}})
	_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
	_, admin := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Admin}})
	for _, c := range []struct {
		name, authorization, method, path string
		want                              int
	}{
		{"reader reads", "Bearer " + reader, "GET", ordersPage, 200},
		{"schemes are told apart by name, not by case", "bearer  " + reader + " ", "GET", ordersPage, 200},
		{"reader of other topics", "Bearer " + reader, "GET", usersPage, 403},
		{"reader of a topic that is not there", "Bearer " + reader, "GET", "/v1/topics/none/partitions/0/events", 403},
		{"reader publishes", "Bearer " + reader, "POST", ordersPublish, 403},
		{"reader resets a group", "Bearer " + reader, "PUT", "/v1/groups/g/offsets", 403},
		{"writer publishes", "Bearer " + writer, "POST", ordersPublish, 200},
		{"writer reads", "Bearer " + writer, "GET", ordersPage, 403},
		{"admin does all", "Bearer " + admin, "GET", usersPage, 200},
		{"admin publishes", "Bearer " + admin, "POST", ordersPublish, 200},
		{"nothing", "", "GET", ordersPage, 401},
		{"no secret", "Bearer", "GET", ordersPage, 401},
		{"no scheme", reader, "GET", ordersPage, 401},
		{"Bearerkey", "Bearer" + reader, "GET", ordersPage, 401},
		{"Bearer: key", "Bearer: " + reader, "GET", ordersPage, 401},
		{"Basic", "Basic dXNlcjpwYXNzOndvcmQ=", "GET", ordersPage, 401},
		{"Basic with our key", "Basic " + reader, "GET", ordersPage, 401},
		{"two keys", "Bearer " + reader + ", Bearer " + admin, "GET", ordersPage, 401},
		{"a long one", "Bearer " + strings.Repeat("a", 10<<10), "GET", ordersPage, 401},
		{"health is for all", "", "GET", "/healthz", 200},
		{"readiness too", "", "GET", "/readyz", 200},
		{"and the description", "", "GET", "/openapi.yaml", 200},
	} {
		var headers []string
		if c.authorization != "" {
			headers = []string{"Authorization", c.authorization}
		}
		for _, from := range []string{elsewhere, hereToo} { // once there are keys, it does not matter
			w := door.ask(from, c.method, c.path, "hello", headers...)
			if w.Code/100 != c.want/100 || c.want >= 400 && w.Code != c.want {
				t.Errorf("%s from %s: %d %s, want %d", c.name, from, w.Code, w.Body, c.want)
			}
		}
	}
	if w := door.ask(elsewhere, "GET", ordersPage, "", "Authorization", "Bearer "+reader, "Authorization", "Bearer "+reader); w.Code != 401 {
		t.Errorf("two headers: %d", w.Code)
	}
}

// Whatever is wrong with a key, a stranger is told the same; the log has the cause.
func TestBadKeysGetOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		read := []apikey.Access{apikey.Read}
		revokedID, revoked := door.key(t, apikey.Spec{Access: read})
		if _, err := door.keys.Revoke(t.Context(), revokedID); err != nil {
			t.Fatal(err)
		}
		_, expired := door.key(t, apikey.Spec{Access: read, Expires: time.Now().Add(time.Minute)})
		_, early := door.key(t, apikey.Spec{Access: read, From: time.Now().Add(time.Hour)})
		_, good := door.key(t, apikey.Spec{Access: read})
		time.Sleep(2 * time.Minute)
		last := "a"
		if strings.HasSuffix(good, "a") {
			last = "b"
		}
		answer := ""
		for _, c := range []struct{ key, cause string }{
			{"weir_aaaaaaaa_" + strings.Repeat("a", 52), "no such API key"},
			{good[:len(good)-1] + last, "no such API key"},
			{"hello", "does not have the form of an API key"},
			{revoked, "is revoked"},
			{expired, "has expired on 2000-01-01"},
			{early, "is not valid yet"},
			{strings.Repeat("a", secretMax+1), "too long"},
		} {
			time.Sleep(turnedAwayEvery)
			door.said.Reset()
			w := door.ask(elsewhere, "GET", ordersPage, "", "Authorization", "Bearer "+c.key, "X-Request-Id", "mine")
			if answer == "" {
				answer = w.Body.String()
			}
			if w.Code != 401 || w.Header().Get("WWW-Authenticate") != `Bearer realm="weir"` || w.Body.String() != answer {
				t.Errorf("%.40s: %d %v %s, want the answer that others get: %s", c.key, w.Code, w.Header(), w.Body, answer)
			}
			if !strings.Contains(door.said.String(), c.cause) {
				t.Errorf("%.40s: the log lacks %q: %s", c.key, c.cause, door.said)
			}
			if len(c.key) > 20 && strings.Contains(door.said.String(), c.key[15:]) {
				t.Errorf("the log holds a key: %s", door.said)
			}
		}
	})
}

func TestKeyInAURLIsRefused(t *testing.T) {
	door := lock(t, Config{})
	_, secret := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Admin}})
	for _, query := range []string{"access_token=" + secret, "token=x", "api_key=x", "ApiKey=x", "wait=1s&q=" + secret, "q=%20" + secret, "key=weir%5F" + secret[5:]} {
		w := door.ask(hereToo, "GET", ordersPage+"?"+query, "", "Authorization", "Bearer "+secret)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "logs") || strings.Contains(w.Body.String(), secret) {
			t.Errorf("?%.20s…: %d %s", query, w.Code, w.Body)
		}
	}
	if strings.Contains(door.said.String(), secret) {
		t.Errorf("the log holds the key: %s", door.said)
	}
}

// Every route, and every one to come, asks for a key with its access.
func TestEveryRouteAsks(t *testing.T) {
	door := lock(t, Config{})
	others := map[access]string{}
	_, others[mayRead] = door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
	_, others[mayWrite] = door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
	_, others[mayAdmin] = door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read, apikey.Write}})
	for _, rt := range api {
		method, path, _ := strings.Cut(rt.pattern, " ")
		path = strings.NewReplacer("{topic}", "orders.eu", "{partition}", "0", "{", "", "}", "").Replace(path)
		if rt.needs.access == public {
			if rt.pattern != "GET /openapi.yaml" {
				t.Errorf("%s is open to all", rt.pattern)
			}
			continue
		}
		if w := door.ask(elsewhere, method, path, ""); w.Code != 401 {
			t.Errorf("%s without a key: %d, want 401", rt.pattern, w.Code)
		}
		if w := door.ask(elsewhere, method, path, "", "Authorization", "Bearer "+others[rt.needs.access]); w.Code != 403 {
			t.Errorf("%s with a key for other things: %d, want 403", rt.pattern, w.Code)
		}
	}
}

func TestWithoutKeysOnlyThisMachineIsServed(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		door := lock(t, Config{Insecure: insecure})
		for _, c := range []struct {
			name, from string
			headers    []string
			want       int
		}{
			{"here", hereToo, nil, 200},
			{"here, IPv6", "[::1]:1234", nil, 200},
			{"elsewhere", elsewhere, nil, 401},
			{"elsewhere, pretending", elsewhere, []string{"X-Forwarded-For", "127.0.0.1"}, 401},
			{"no address", "@", nil, 401},
			{"through a proxy", hereToo, []string{"X-Forwarded-For", "192.0.2.7"}, 401},
			{"through a modern proxy", hereToo, []string{"Forwarded", "for=192.0.2.7"}, 401},
			{"through another", hereToo, []string{"Via", "1.1 proxy"}, 401},
		} {
			if insecure {
				c.want = 200
			}
			if w := door.ask(c.from, "GET", ordersPage, "", c.headers...); w.Code != c.want {
				t.Errorf("%s, insecure=%v: %d %s, want %d", c.name, insecure, w.Code, w.Body, c.want)
			}
		}
		if w := door.ask(hereToo, "GET", ordersPage, "", "Authorization", "Bearer weir_aaaaaaaa_"+strings.Repeat("a", 52)); w.Code != 401 {
			t.Errorf("who shows a key wants it looked at: %d", w.Code)
		}
	}
}

// A page that made a name of its own mean 127.0.0.1 is from elsewhere.
func TestReboundNameIsNotThisMachine(t *testing.T) {
	door := lock(t, Config{})
	r := httptest.NewRequest("GET", "http://evil.example:8080"+ordersPage, nil)
	r.RemoteAddr = hereToo
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("%d %s, want 401", w.Code, w.Body)
	}
}

func TestInsecureTakesNoNameThatAWebPageCouldHave(t *testing.T) {
	door := lock(t, Config{Insecure: true, Hosts: []string{"weir.example.org"}})
	for host, want := range map[string]int{
		"evil.example:8080": 421, "evil.example.": 421, "127.0.0.1.evil.example": 421, "weir.example.org.evil.example": 421,
		"weir": 200, "weir:8080": 200, "weir.ns.svc": 200, "weir.ns.svc.cluster.local:8080": 200, "10.0.0.7:8080": 200, "[::1]:8080": 200, "localhost": 200, "Weir.Example.org:8080": 200,
	} {
		for _, from := range []string{hereToo, elsewhere} {
			r := httptest.NewRequest("GET", "http://"+host+ordersPage, nil)
			r.RemoteAddr = from
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s from %s: %d %s, want %d", host, from, w.Code, w.Body, want)
			}
			if host == "evil.example:8080" && !strings.Contains(w.Body.String(), "--http-host evil.example,") {
				t.Errorf("it advises what the flag does not take: %s", w.Body)
			}
		}
	}
}

func TestAProxyThatSaysAnythingIsNotThisMachine(t *testing.T) {
	door := lock(t, Config{})
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-Ip", "Via", "Cf-Connecting-Ip", "True-Client-Ip"} {
		if w := door.ask(hereToo, "GET", ordersPage, "", header, "x"); w.Code != 401 {
			t.Errorf("%s: %d, want 401", header, w.Code)
		}
	}
}

func TestFirstKeyShutsTheDoorForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{Insecure: true})
		if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 200 {
			t.Fatalf("before: %d", w.Code)
		}
		id, _ := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 401 {
			t.Errorf("with a key in the store: %d, want 401", w.Code)
		}
		if _, err := door.keys.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 401 {
			t.Errorf("with the last key revoked: %d, want 401", w.Code)
		}
	})
}

// What comes after the key was revoked does not reach a stream that is open.
func TestRevokedKeyEndsItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		id, secret := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/topics/orders.eu/events", nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Authorization", "Bearer "+secret)
		w, ended := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(ended)
			door.ServeHTTP(w, r)
		}()
		synctest.Wait()
		publish := func(value string) {
			t.Helper()
			if w := door.ask(elsewhere, "POST", ordersPublish, value, "Authorization", "Bearer "+writer); w.Code != 200 {
				t.Fatalf("publish: %d %s", w.Code, w.Body)
			}
			synctest.Wait()
		}
		publish("before")
		if _, err := door.keys.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		publish("after")
		select {
		case <-ended:
		default:
			t.Error("the stream goes on")
			leave()
			<-ended
		}
		if body := w.Body.String(); !strings.Contains(body, "before") || strings.Contains(body, "after") {
			t.Errorf("the stream had: %s", body)
		}
	})
}

// Who waits for events with a key that is revoked meanwhile gets none.
func TestRevokedKeyEndsItsLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		id, secret := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
		bearer := []string{"Authorization", "Bearer " + secret, "Content-Type", "application/json"}
		joined := door.ask(elsewhere, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"]}`, bearer...)
		if joined.Code != 201 {
			t.Fatalf("join: %d %s", joined.Code, joined.Body)
		}
		polls := []string{ordersPage + "?offset=0&wait_ms=9000", joined.Header().Get("Location") + "/events?wait_ms=9000"}
		answers := make(chan *httptest.ResponseRecorder)
		for _, poll := range polls {
			go func() { answers <- door.ask(elsewhere, "GET", poll, "", bearer...) }()
		}
		synctest.Wait()
		if _, err := door.keys.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if w := door.ask(elsewhere, "POST", ordersPublish, "secret", "Authorization", "Bearer "+writer); w.Code != 200 {
			t.Fatalf("publish: %d %s", w.Code, w.Body)
		}
		for range polls {
			if w := <-answers; w.Code != 401 || strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "is revoked") || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("a poll with a key that was revoked got %d %s %s", w.Code, w.Body, w.Header())
			}
		}
		if !strings.Contains(door.said.String(), "the API key is revoked") {
			t.Errorf("the log does not say why: %s", door.said)
		}
		_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		if w := door.ask(elsewhere, "DELETE", joined.Header().Get("Location"), "", "Authorization", "Bearer "+reader); w.Code != 204 {
			t.Errorf("the member leaves: %d %s", w.Code, w.Body)
		}
	})
}

func TestOperatorsPagesAreForThisMachineAndAdmins(t *testing.T) {
	door := lock(t, Config{Profile: true})
	_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read, apikey.Write}})
	_, local := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Admin}, Topics: []string{"orders."}})
	_, admin := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Admin}})
	_, metrics := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Metrics}})
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/trace?seconds=0", "/debug/pprof/profile?seconds=bad"} {
		for _, c := range []struct {
			name, from, key string
			want            int
		}{
			{"a stranger", elsewhere, "", 401}, {"a reader", elsewhere, reader, 403}, {"an admin of some topics", elsewhere, local, 403},
			{"an admin", elsewhere, admin, 200}, {"this machine", hereToo, "", 200}, {"a key for metrics", elsewhere, metrics, 403},
		} {
			if c.key == metrics && path == "/metrics" {
				c.want = 200
			}
			if c.key == "" && c.want == 200 && path != "/metrics" {
				c.want = 401 // a proxy that says nothing is this machine, too
			}
			if c.want == 200 && strings.Contains(path, "?") {
				continue // they take their time
			}
			var headers []string
			if c.key != "" {
				headers = []string{"Authorization", "Bearer " + c.key}
			}
			if w := door.ask(c.from, "GET", path, "", headers...); w.Code != c.want {
				t.Errorf("%s by %s: %d %s, want %d", path, c.name, w.Code, w.Body, c.want)
			}
		}
	}
	if w := lock(t, Config{}).ask(hereToo, "GET", "/debug/pprof/", ""); w.Code != 404 {
		t.Errorf("profiles that nobody asked for: %d, want 404", w.Code)
	}
}

func TestPagesOfOtherSitesGetNothing(t *testing.T) {
	door := lock(t, Config{})
	w := door.ask(hereToo, "OPTIONS", ordersPublish, "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization")
	if w.Code/100 == 2 {
		t.Errorf("a preflight: %d", w.Code)
	}
	for name, answer := range map[string]*httptest.ResponseRecorder{
		"a form":      door.ask(hereToo, "POST", ordersPublish, "x=1", "Origin", "http://evil.example", "Content-Type", "text/plain"),
		"a fetch":     door.ask(hereToo, "POST", ordersPublish, "x=1", "Sec-Fetch-Site", "cross-site"),
		"a sandbox":   door.ask(hereToo, "POST", ordersPublish, "x=1", "Origin", "null"),
		"a deletion":  door.ask(hereToo, "DELETE", "/v1/topics/users", "", "Origin", "http://evil.example"),
		"a preflight": w,
		"a read":      door.ask(hereToo, "GET", ordersPage, "", "Origin", "http://evil.example"),
	} {
		if name != "a read" && name != "a preflight" && answer.Code != 403 {
			t.Errorf("%s: %d %s, want 403", name, answer.Code, answer.Body)
		}
		for header := range answer.Header() {
			if strings.HasPrefix(header, "Access-Control-") {
				t.Errorf("%s is answered with %s", name, header)
			}
		}
	}
}

func TestLogOfRefusalsIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		for range 1000 {
			door.ask(elsewhere, "GET", ordersPage, "", "Authorization", "Bearer hunter2\" forged=\"line")
		}
		time.Sleep(turnedAwayEvery)
		door.ask(elsewhere, "GET", ordersPage, "", "Authorization", "Bearer hunter2")
		if said := door.said.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "more_before=999") || strings.Contains(said, "hunter2") {
			t.Errorf("1001 refusals are logged as:\n%s", said)
		}
	})
}

func TestStoreThatIsAwayAtTheStartIsNotTheKeysFault(t *testing.T) {
	door := New(Config{Keys: apikey.New(everystore.Direct(gone{}), slog.New(slog.DiscardHandler)), Metrics: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler)}).guard(&net.TCPAddr{IP: net.IPv4zero})
	for _, headers := range [][]string{nil, {"Authorization", "Bearer weir_aaaaaaaa_" + strings.Repeat("a", 52)}} {
		w := (&locked{Handler: door}).ask(hereToo, "GET", ordersPage, "", headers...)
		if w.Code != 503 || w.Header().Get("Weir-Applied") != "no" {
			t.Errorf("%d %v %s, want 503 and that nothing happened", w.Code, w.Header(), w.Body)
		}
	}
}

// gone is a store that is away.
type gone struct{ eventlog.Store }

func (gone) List(context.Context, string, string, int) ([]eventlog.KeyValue, error) {
	return nil, fmt.Errorf("%w: gone", eventlog.ErrUnavailable)
}

func TestRefusalsAreProblems(t *testing.T) {
	door := lock(t, Config{})
	_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
	for kind, w := range map[string]*httptest.ResponseRecorder{
		"unauthorized": door.ask(elsewhere, "GET", ordersPage, ""),
		"forbidden":    door.ask(elsewhere, "POST", ordersPublish, "x", "Authorization", "Bearer "+reader),
		"token_in_url": door.ask(elsewhere, "GET", ordersPage+"?token=x", ""),
	} {
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Type != problemPrefix+kind || p.Status != w.Code || p.Detail == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v %v %s", kind, err, w.Header(), w.Body)
		}
	}
}

// listen serves on a free port until the test ends, and returns the address.
func listen(t *testing.T, cfg Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Ready, cfg.Metrics, cfg.Logger = func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	if cfg.Log, err = eventlog.Open(t.Context(), memory.New(), eventlog.Config{Logger: cfg.Logger}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(cfg).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

// listenTLS is listen with a new certificate. It returns whom to trust, too.
func listenTLS(t *testing.T) (address string, trusted *x509.CertPool) {
	t.Helper()
	lender := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	lender.Close()
	lent := lender.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(lent.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lent.Certificate[0]})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, text := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := certificate.Load(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	return listen(t, Config{TLS: shown.TLS()}), trusted
}

func TestTLSIsModern(t *testing.T) {
	address, trusted := listenTLS(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 || response.ProtoMajor != 2 || response.TLS.Version != tls.VersionTLS13 {
		t.Errorf("%s over %s, TLS %x; want 200 over HTTP/2 and TLS 1.3", response.Status, response.Proto, response.TLS.Version)
	}
	old, err := tls.Dial("tcp", address, &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err == nil {
		old.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

// TLS that takes clients' certificates, and needs none, speaks HTTP/2, too. A client with a
// certificate is known by it.
func TestTLSTakesClientsCertificates(t *testing.T) {
	signer, other, dir := certtest.New(t), certtest.New(t), t.TempDir()
	cert, key := signer.Issue(t, "weir", time.Hour)
	files := map[string][]byte{"cert.pem": cert, "key.pem": key, "ca.pem": signer.PEM()}
	for name, text := range files {
		certtest.Write(t, filepath.Join(dir, name), text)
	}
	shown, err := certificate.Load(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	signers, err := certificate.LoadAuthorities(filepath.Join(dir, "ca.pem"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	address := listen(t, Config{TLS: shown.OptionalTLS(signers), Keys: apikey.New(everystore.Direct(store), slog.New(slog.DiscardHandler)), SuperUsers: []string{"User:CN=ops,O=tests"}})
	get := func(by *certtest.Authority, name string) (*http.Response, error) {
		t.Helper()
		trust := &tls.Config{RootCAs: signer.Pool()}
		if by != nil {
			cert, key := by.Issue(t, name, time.Hour)
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			trust.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whoever the server asks for
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		response, err := client.Get("https://" + address + "/v1/topics")
		if err == nil {
			response.Body.Close()
		}
		return response, err
	}
	for name, want := range map[string]int{"": 401, "ops": 200} {
		by := signer
		if name == "" {
			by = nil
		}
		if response, err := get(by, name); err != nil || response.StatusCode != want || response.ProtoMajor != 2 {
			t.Errorf("the certificate of %q: %+v, %v; want %d over HTTP/2", name, response, err, want)
		}
	}
	if response, err := get(other, "ops"); err == nil {
		t.Errorf("a certificate that somebody else signed: %s", response.Status)
	}
}

func TestPlainHTTPOnATLSPortIsTold(t *testing.T) {
	address, _ := listenTLS(t)
	response, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 400 || !strings.Contains(string(body), "HTTPS server") {
		t.Errorf("%s %q %v", response.Status, body, err)
	}
}

func TestMegabyteOfKeyIsRefused(t *testing.T) {
	address := listen(t, Config{})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", ordersPage, strings.Repeat("a", 1<<20))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 431 {
		t.Errorf("%s, want 431", response.Status)
	}
}

// Who needs no credentials holds a share of the requests in progress, not all of them.
func TestStrangersDoNotTakeAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		door := lock(t, Config{limits: limits{Requests: 64}, Console: func(*Inside) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-leave })
		}})
		_, reader := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		var held sync.WaitGroup
		answers := make(chan int, 1000)
		for n := range 100 {
			for _, from := range []string{elsewhere, fmt.Sprintf("198.51.%d.7:1000", n)} {
				held.Go(func() { answers <- door.ask(from, "GET", "/console/login", "").Code })
			}
		}
		synctest.Wait()
		if w := door.ask("203.0.113.9:1000", "GET", ordersPage, "", "Authorization", "Bearer "+reader); w.Code != 200 {
			t.Errorf("with a key, while strangers hold what they can: %d %s", w.Code, w.Body)
		}
		close(leave)
		held.Wait()
		close(answers)
		codes := map[int]int{}
		for code := range answers {
			codes[code]++
		}
		if codes[200] != 16 || codes[429] == 0 || codes[503] == 0 {
			t.Errorf("answers by code: %v, want 16 times 200, and 429 and 503", codes)
		}
	})
}
