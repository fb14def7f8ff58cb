package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/mysql"
)

// server is `weir serve` running in this process.
type server struct {
	kafka, http string
	out         *lockedBuffer // standard output and error
	stop        func() int    // presses Ctrl-C and returns the exit code
}

var readyLine = regexp.MustCompile(`(?s)Kafka  (\S+)[^\n]*\n  HTTP   https?://(\S+) .*Try:`)

// serve starts weir on free ports and waits until it says that it is ready.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &server{out: &lockedBuffer{changed: make(chan struct{}, 1)}}
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"serve", "--http", "127.0.0.1:0"}, args...)
		if !slices.Contains(args, "--kafka") {
			args = append(args, "--kafka", "127.0.0.1:0")
		}
		ended <- run(ctx, "test", args, &terminal{in: strings.NewReader(""), out: s.out, err: s.out}, nil)
	}()
	s.stop = sync.OnceValue(func() int {
		cancel(stopped{syscall.SIGINT})
		return <-ended
	})
	t.Cleanup(func() { s.stop() })
	for {
		if m := readyLine.FindStringSubmatch(s.out.String()); m != nil {
			s.kafka, s.http = m[1], m[2]
			t.Setenv("WEIR_BOOTSTRAP", s.kafka)
			return s
		}
		select {
		case <-s.out.changed:
		case code := <-ended:
			ended <- code // for stop
			t.Fatalf("weir serve ended with %d: %s", code, s.out.String())
		}
	}
}

func TestKafkaOffLeavesOneDoor(t *testing.T) {
	s := serve(t, "--store", "memory:", "--kafka", "off", "--log", "text")
	out := s.out.String()
	if s.kafka != "off" || strings.Contains(out, "produce") || !strings.Contains(out, "curl") {
		t.Errorf("weir says %s", out)
	}
	if got := s.ask(t, ""); got != 404 {
		t.Errorf("over HTTP: %d, want 404: there is no topic yet", got)
	}
	if code := s.stop(); code != exitOK {
		t.Errorf("Ctrl-C: exit code %d: %s", code, s.out.String())
	}
	weir(t, "", "serve", "--store", "memory:", "--kafka", "off", "--advertise", "a:1").want(t, exitUsage, "--advertise")
	weir(t, "", "serve", "--store", "memory:", "--kafka", "off", "--http", "nowhere").want(t, exitUsage, "--http")
	weir(t, "", "serve", "--store", "memory:", "--kafka", "no").want(t, exitUsage, "--kafka")
}

// Who sees weir start, or makes a key, is told which doors the key does not close.
func TestOpenDoorsAreTold(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	const apart = "--kafka off"
	if out := serve(t, "--store", url).out.String(); !strings.Contains(out, "without API keys, for this machine") || strings.Contains(out, apart) {
		t.Errorf("without keys weir says %s", out)
	}
	key := []string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups", "--store", url}
	weir(t, "", key...).want(t, exitOK, "another --kafka address need no key", apart)
	if r := weir(t, "", append(key, "--output", "json")...); !strings.Contains(r.err, apart) || strings.Contains(r.out, apart) {
		t.Errorf("%+v", r)
	}
	if out := serve(t, "--store", url).out.String(); !strings.Contains(out, "without API keys, for this machine: API keys do not protect this address; "+apart) {
		t.Errorf("with keys weir says %s", out)
	}
	if out := serve(t, "--store", url, "--kafka", "0.0.0.0:0", "--insecure").out.String(); !strings.Contains(out, "without API keys, for everybody: ") {
		t.Errorf("on all addresses weir says %s", out)
	}
}

// lockedBuffer is a buffer that says when it has grown.
type lockedBuffer struct {
	mu      sync.Mutex // guards b
	b       bytes.Buffer
	changed chan struct{}
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitFor waits until text was written.
func (l *lockedBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for late := time.After(time.Minute); !strings.Contains(l.String(), text); {
		select {
		case <-l.changed:
		case <-late:
			t.Fatalf("a minute went by without %q; there is: %s", text, l.String())
		}
	}
}

// durableStores are the stores that keep what they hold when weir stops.
func durableStores(t *testing.T) map[string]string {
	urls := map[string]string{}
	for _, kind := range everystore.Durable() {
		urls[kind] = everystore.URL(t, kind)
	}
	return urls
}

func TestEverythingIsThereAfterARestart(t *testing.T) {
	for name, url := range durableStores(t) {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "--store", url)
			weir(t, "", "topic", "create", "orders", "--partitions", "2", "--retention", "9h").want(t, exitOK, "created topic orders with 2 partitions")
			weir(t, "a=1\nb=2\nc=3\n", "produce", "orders", "--key-separator", "=", "--partition", "1").want(t, exitOK, "3 records acknowledged")
			if r := weir(t, "", "consume", "orders", "--group", "billing", "--max", "2"); r.out != "1\n2\n" {
				t.Fatalf("before the restart: %+v", r)
			}
			if code := s.stop(); code != exitOK {
				t.Fatalf("Ctrl-C: exit code %d: %s", code, s.out.String())
			}

			serve(t, "--store", url)
			if r := weir(t, "", "consume", "orders", "--key-separator", "="); r.out != "a=1\nb=2\nc=3\n" {
				t.Errorf("the records after the restart: %+v", r)
			}
			if r := weir(t, "", "consume", "orders", "--group", "billing"); r.out != "3\n" {
				t.Errorf("the group after the restart: %+v", r)
			}
			weir(t, "", "topic", "describe", "orders").want(t, exitOK, "retention.ms  32400000")
		})
	}
}

func TestMemoryStoreForgets(t *testing.T) {
	s := serve(t, "--store", "memory:")
	weir(t, "hello\n", "produce", "greetings").want(t, exitOK, "1 record acknowledged")
	if r := weir(t, "", "consume", "greetings"); r.out != "hello\n" {
		t.Errorf("%+v", r)
	}
	if code := s.stop(); code != exitOK {
		t.Fatalf("Ctrl-C: exit code %d: %s", code, s.out.String())
	}
	serve(t, "--store", "memory:")
	weir(t, "", "consume", "greetings").want(t, exitFailed, "UNKNOWN_TOPIC_OR_PARTITION")
}

func TestFollowerSeesWhatComes(t *testing.T) {
	serve(t, "--store", "memory:")
	weir(t, "one\n", "produce", "greetings").want(t, exitOK)
	printed := &lockedBuffer{changed: make(chan struct{}, 1)}
	ended := make(chan int)
	go func() {
		ended <- run(t.Context(), "test", []string{"consume", "greetings", "--follow", "--max", "2"},
			&terminal{out: printed, err: io.Discard}, nil)
	}()
	printed.waitFor(t, "one\n")
	weir(t, "two\n", "produce", "greetings").want(t, exitOK)
	if code := <-ended; code != exitOK || printed.String() != "one\ntwo\n" {
		t.Errorf("exit code %d, printed %q", code, printed.String())
	}
}

func TestHTTPDoorTellsOfTheLog(t *testing.T) {
	s := serve(t, "--store", "memory:")
	weir(t, "one\ntwo\n", "produce", "greetings").want(t, exitOK)
	weir(t, "", "consume", "greetings", "--group", "readers", "--max", "1").want(t, exitOK)
	for path, texts := range map[string][]string{
		"/healthz": {"ok"},
		"/readyz":  {"ready"},
		"/metrics": {
			"weir_appended_records_total ", `weir_fetches_total{source="tail"}`, `weir_kafka_request_seconds_count{api="Produce"}`,
			`weir_group_lag_records{group="readers",topic="greetings"} 1`, `weir_build_info{version="test"} 1`, "go_goroutines",
		},
	} {
		code, body := s.get(t, path)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%s lacks %q:\n%s", path, text, body)
			}
		}
	}
}

func TestServeWithACache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	s := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "weir.db"), "--cache-dir", dir, "--cache-bytes", "16MiB", "--tail", "1B")
	for i := range 4 {
		incompressible := make([]byte, 300_000) // producers compress
		_, _ = rand.Read(incompressible)        // it returns no error
		weir(t, fmt.Sprintf("%d%x\n", i, incompressible), "produce", "greetings").want(t, exitOK)
	}
	for range 2 {
		if r := weir(t, "", "consume", "greetings"); strings.Count(r.out, "\n") != 4 {
			t.Errorf("%+v", r)
		}
	}
	if _, body := s.get(t, "/metrics"); strings.Contains(body, "weir_cache_blocks 0") || strings.Contains(body, `weir_cache_reads_total{result="hit"} 0`) {
		t.Errorf("the second consumer did not read blocks:\n%s", body)
	}
	weir(t, "", "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--kafka", "off", "--cache-dir", dir).want(t, exitConfig, "another process uses this directory")
	weir(t, "", "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--kafka", "off", "--cache-dir", t.TempDir(), "--cache-bytes", "1KiB").want(t, exitConfig, "it needs at least")
}

func TestServeCountsRequestsToS3(t *testing.T) {
	s := serve(t, "--store", s3test.URL(t), "--cache-dir", filepath.Join(t.TempDir(), "cache"))
	puts := func() (n int) {
		_, body := s.get(t, "/metrics")
		_, rest, _ := strings.Cut(body, `weir_s3_requests_total{kind="put"} `)
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatalf("no count of puts (%v) in:\n%s", err, body)
		}
		for _, kind := range []string{"get", "list", "delete"} {
			if want := `weir_s3_requests_total{kind="` + kind + `"} `; !strings.Contains(body, want) || strings.Contains(body, want+"0\n") {
				t.Errorf("want %q above 0: a start makes such requests; the page is\n%s", want, body)
			}
		}
		return n
	}
	before := puts()
	weir(t, "hello\n", "produce", "greetings").want(t, exitOK)
	if after := puts(); after <= before {
		t.Errorf("%d puts before a record was published, %d after it", before, after)
	}
}

// A process that is alone on a bucket does not pay for telling others that it lives.
func TestAloneOnABucketNobodyIsTold(t *testing.T) {
	for options, want := range map[string]int{"": 1, "&alone=true": 0} {
		address := s3test.URL(t) + options
		s := serve(t, "--store", address)
		s.waitReady(t, http.StatusOK)
		opened, err := store.Open(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		if brokers, err := opened.List(t.Context(), "broker/", "", 10); err != nil || len(brokers) != want {
			t.Errorf("with %q there are %d keys of brokers (%v), want %d", options, len(brokers), err, want)
		}
	}
}

// serve --read-only follows a process that writes, with credentials that may only read, and serves
// consumers.
func TestServeReadOnlyFollowsABucketAndNeverWrites(t *testing.T) {
	address := s3test.URL(t)
	writer := serve(t, "--store", address)
	bootstrap := func(s *server) string { return "--bootstrap=" + s.kafka }
	weir(t, "one\n", "produce", "greetings", bootstrap(writer)).want(t, exitOK)
	proxy := s3test.NewProxy(t, address)
	proxy.Faults(func(r s3test.Request) s3test.Fault { return s3test.Fault{Deny: r.Method != http.MethodGet} })
	replica := serve(t, "--store", proxy.URL(), "--read-only")
	if code, body := replica.get(t, "/readyz"); code != http.StatusOK || !strings.Contains(body, "read-only") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	weir(t, "two\n", "produce", "greetings", bootstrap(writer)).want(t, exitOK)
	weir(t, "", "consume", "greetings", "--max", "2", "--follow", bootstrap(replica)).want(t, exitOK, "one\ntwo\n")
	weir(t, "three\n", "produce", "greetings", bootstrap(replica)).want(t, exitFailed, "--read-only")
	weir(t, "", "topic", "create", "other", bootstrap(replica)).want(t, exitFailed, "--read-only")
	replica.metric(t, "weir_replica_behind_seconds")
	for _, none := range []string{`weir_s3_requests_total{kind="put"} 0`, `weir_s3_requests_total{kind="delete"} 0`} {
		replica.metric(t, none)
	}
	if code := replica.stop(); code != exitOK && code != 130 {
		t.Errorf("it ends with %d: %s", code, replica.out)
	}
	if said := replica.out.String(); strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
		t.Errorf("it complains: %s", said)
	}
	for _, r := range proxy.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("the replica sent %s %s", r.Method, r.Key)
		}
	}
	weir(t, "", "serve", "--read-only", "--http", "127.0.0.1:0", "--kafka", "off").want(t, exitConfig, "only s3://", "leave --read-only out")
	weir(t, "", "serve", "--read-only", "--http", "127.0.0.1:0", "--kafka", "off", "--store", s3test.URL(t)).want(t, exitRefused, "there is no log yet")
}

func TestStoreGoesAwayAndComesBack(t *testing.T) {
	database := pgtest.Start(t)
	s := serve(t, "--store", database.URL())
	weir(t, "before\n", "produce", "greetings").want(t, exitOK)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	printed := &lockedBuffer{changed: make(chan struct{}, 1)}
	follower := make(chan int)
	go func() {
		follower <- run(ctx, "test", []string{"consume", "greetings", "--follow"}, &terminal{out: printed, err: io.Discard}, nil)
	}()
	printed.waitFor(t, "before\n")
	database.Stop()
	s.waitReady(t, http.StatusServiceUnavailable)
	if code, _ := s.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz without the store: %d, want 200: a restart would not help", code)
	}
	if r := weir(t, "during\n", "produce", "greetings", "--timeout", "2s"); r.code == exitOK {
		t.Errorf("acknowledged without the store: %+v", r)
	}
	database.Resume()
	s.waitReady(t, http.StatusOK)
	weir(t, "after\n", "produce", "greetings").want(t, exitOK)
	printed.waitFor(t, "after\n") // by the consumer that was there all the time
	leave()
	<-follower
	// The one that nobody acknowledged may have been stored all the same.
	if r := weir(t, "", "consume", "greetings"); r.out != "before\nafter\n" && r.out != "before\nduring\nafter\n" {
		t.Errorf("with the store again: %+v", r)
	}
}

func (s *server) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + s.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// waitReady asks /readyz until it answers with a code.
func (s *server) waitReady(t *testing.T, want int) {
	t.Helper()
	again, late := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		code, body := s.get(t, "/readyz")
		if code == want {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("/readyz stays at %d %s, want %d; weir says: %s", code, body, want, s.out.String())
		}
	}
}

func TestServeRefusesSettingsThatCannotWork(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{"public", []string{"--kafka", "0.0.0.0:0"}, exitUnsafe, "--insecure"},
		{"public name", []string{"--kafka", ":9092"}, exitUnsafe, "--insecure"},
		{"public HTTP", []string{"--http", "[::]:0"}, exitUnsafe, "--insecure"},
		{"same port", []string{"--kafka", "127.0.0.1:9092", "--http", "127.0.0.1:9092"}, exitConfig, "have the same port"},
		{"same port, one for all", []string{"--kafka", ":9092", "--http", "127.0.0.1:9092", "--insecure"}, exitConfig, "have the same port"},
		{"in use", []string{"--kafka", taken.Addr().String()}, exitConfig, "address already in use"},
		{"not ours", []string{"--kafka", "192.0.2.1:9092", "--insecure"}, exitConfig, "give --kafka an address of this machine"},
		{"no port", []string{"--kafka", "127.0.0.1"}, exitUsage, "write HOST:PORT"},
		{"bad port", []string{"--http", "127.0.0.1:99999"}, exitUsage, "write HOST:PORT"},
		{"advertised everywhere", []string{"--advertise", "0.0.0.0:9092"}, exitConfig, "the name or address at which clients can reach"},
		{"unknown protocol", []string{"--kafka", "tls://127.0.0.1:0"}, exitUsage, "use plaintext, ssl, sasl_plaintext, sasl_ssl"},
		{"TLS without a certificate", []string{"--kafka", "ssl://127.0.0.1:0"}, exitUsage, "--tls-cert FILE --tls-key FILE"},
		{"SASL over TLS without a certificate", []string{"--kafka", "sasl_ssl://127.0.0.1:0"}, exitUsage, "--tls-cert FILE --tls-key FILE"},
		{"public without a login", []string{"--kafka", "a=sasl_plaintext://127.0.0.1:0", "--kafka", "0.0.0.0:0"}, exitUnsafe, "sasl_ssl://"},
		{"clients' authority without TLS", []string{"--tls-client-ca", "ca.crt"}, exitUsage, "--tls-cert is not given"},
		{"same name", []string{"--kafka", "127.0.0.1:0", "--kafka", "127.0.0.1:0"}, exitUsage, "have the name plaintext"},
		{"no name", []string{"--kafka", "=127.0.0.1:0"}, exitUsage, "empty name"},
		{"same port for two", []string{"--kafka", "127.0.0.1:9092", "--kafka", "b=127.0.0.1:9092"}, exitConfig, "have the same port"},
		{"off and on", []string{"--kafka", "off", "--kafka", "127.0.0.1:0"}, exitUsage, "contradict each other"},
		{"advertised for which", []string{"--kafka", "a=127.0.0.1:0", "--kafka", "b=127.0.0.1:0", "--advertise", "localhost:1"}, exitUsage, "for which of the 2"},
		{"advertised for nobody", []string{"--kafka", "a=127.0.0.1:0", "--advertise", "b=localhost:1"}, exitUsage, "no --kafka address has the name b"},
		{"advertised twice", []string{"--kafka", "a=127.0.0.1:0", "--advertise", "a=localhost:1", "--advertise", "a=localhost:2"}, exitUsage, "given twice"},
		{"a rule for no certificates", []string{"--tls-principal-rule", "DEFAULT"}, exitUsage, "--tls-client-ca is not given"},
		{"a bad rule", []string{"--tls-principal-rule", "RULE:CN=(.*)"}, exitUsage, "it must be DEFAULT, RULE:PATTERN/REPLACEMENT/"},
		{"tokens of anybody", []string{"--oauth-jwks", "https://a.example/jwks", "--oauth-issuer", "i"}, exitUsage, "needs --oauth-issuer and --oauth-audience"},
		{"tokens without keys", []string{"--oauth-issuer", "i"}, exitUsage, "--oauth-jwks is not given"},
		{"unencrypted keys", []string{"--kafka", "sasl_plaintext://127.0.0.1:0", "--oauth-jwks", "http://a.example/jwks", "--oauth-issuer", "i", "--oauth-audience", "a"}, exitUnsafe, "is not encrypted"},
		{"no file of keys", []string{"--kafka", "sasl_plaintext://127.0.0.1:0", "--oauth-jwks", "missing.json", "--oauth-issuer", "i", "--oauth-audience", "a"}, exitConfig, "--oauth-jwks: open missing.json"},
		{"clocks that differ much", []string{"--kafka", "sasl_plaintext://127.0.0.1:0", "--oauth-jwks", "https://a.example/jwks", "--oauth-issuer", "i", "--oauth-audience", "a", "--oauth-leeway", "1h"}, exitConfig, "0 to 10m0s are allowed"},
		{"a negative id", []string{"--broker-id=-1"}, exitUsage, "ids begin at 0"},
		{"sessions of no length", []string{"--group-min-session-timeout", "1m", "--group-max-session-timeout", "30s"}, exitUsage, "--group-max-session-timeout 30s, which must not be shorter"},
		{"heartbeats that come too late", []string{"--group-consumer-heartbeat-interval", "45s"}, exitUsage, "--group-consumer-session-timeout 45s, which must be longer"},
		{"no time for a heartbeat", []string{"--group-consumer-heartbeat-interval", "0s"}, exitUsage, "it must be at least 1ms"},
		{"groups without members", []string{"--group-max-size", "0"}, exitUsage, "it must be at least 1"},
		{"bad size", []string{"--tail", "64"}, exitUsage, "the unit is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--store", "memory:", "--http", "127.0.0.1:0"}, c.args...)
			if !slices.Contains(args, "--kafka") {
				args = append(args, "--kafka", "127.0.0.1:0")
			}
			weir(t, "", args...).want(t, c.code, c.text)
		})
	}
}

func TestServeWarnsOfAnAddressThatClientsCannotUse(t *testing.T) {
	s := serve(t, "--store", "memory:", "--kafka", "0.0.0.0:0", "--insecure", "--advertise", "localhost:9092")
	if !strings.Contains(s.out.String(), "try to connect to their own machine") {
		t.Errorf("no warning: %s", s.out.String())
	}
	s = serve(t, "--store", "memory:", "--advertise", "no-such-host.invalid:9092")
	if !strings.Contains(s.out.String(), "cannot resolve the advertised host") {
		t.Errorf("no warning: %s", s.out.String())
	}
}

func TestServeTellsStoresApart(t *testing.T) {
	notADatabase := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(notADatabase, bytes.Repeat([]byte("these are notes\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		store string
		code  int
	}{
		{"postgres://weir:hunter2@127.0.0.1:1/weir", exitUnreachable},
		{"sqlite:" + notADatabase, exitRefused},
		{"mystery:somewhere", exitConfig},
	} {
		for _, command := range []string{"serve", "doctor"} {
			args := []string{command, "--store", c.store}
			if command == "serve" {
				args = append(args, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
			}
			r := weir(t, "", args...)
			r.want(t, c.code)
			if strings.Contains(r.out+r.err, "hunter2") {
				t.Errorf("%v shows the password: %+v", args, r)
			}
		}
	}
}

func TestServeTellsPostgresTroublesApart(t *testing.T) {
	here := pgtest.URL(t)
	role := "weir_test_" + strings.ToLower(rand.Text()[:12])
	pgtest.Exec(t, here, `CREATE ROLE `+role+` LOGIN PASSWORD 'hunter2'`)
	t.Cleanup(func() { pgtest.Exec(t, here, `DROP ROLE `+role) })
	change := func(address string, to func(*url.URL)) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		to(u)
		return u.String()
	}
	strangers := pgtest.URL(t)
	pgtest.Exec(t, strangers, `CREATE SCHEMA weir; CREATE TABLE weir.orders (id int)`)
	for name, c := range map[string]struct {
		store, text string
		code        int
	}{
		"no server":   {change(here, func(u *url.URL) { u.Host = "127.0.0.1:1" }), "connection refused", exitUnreachable},
		"no host":     {change(here, func(u *url.URL) { u.Host = "no-such-host.invalid:5432" }), "no-such-host.invalid", exitUnreachable},
		"no database": {change(here, func(u *url.URL) { u.Path = "/no_such_database" }), "no_such_database", exitRefused},
		"no rights":   {change(here, func(u *url.URL) { u.User = url.UserPassword(role, "hunter2") }), "may not create the schema weir", exitRefused},
		"strangers":   {strangers, "weir", exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := weir(t, "", "serve", "--store", c.store, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
			r.want(t, c.code, c.text)
			if strings.Contains(r.out+r.err, "hunter2") {
				t.Errorf("the password is shown: %+v", r)
			}
		})
	}
}

func TestServeWarnsOfAStoreThatForgets(t *testing.T) {
	if s := serve(t, "--store", "memory:"); !strings.Contains(s.out.String(), "may lose acknowledged records") {
		t.Errorf("no warning: %s", s.out.String())
	}
}

func TestDoctorFindsADurableStoreWell(t *testing.T) {
	for name, url := range durableStores(t) {
		t.Run(name, func(t *testing.T) {
			serve(t, "--store", url).stop()
			var list []findingRow
			decode(t, weir(t, "", "doctor", "--store", url, "--output", "json"), &list)
			for _, f := range list {
				if f.Level == "bad" && f.Name != "free disk space" { // that is the machine's affair
					t.Errorf("%+v", f)
				}
			}
			weir(t, "", "doctor", "--store", url).want(t, exitOK, "LEVEL  CHECK", "ok     store")
		})
	}
}

// A script that runs weir doctor before weir serve goes by the exit code.
func TestDoctorEndsWith6WhereAFindingIsBad(t *testing.T) {
	for _, format := range [][]string{nil, {"--output", "json"}} {
		r := weir(t, "", append([]string{"doctor", "--store", "memory:"}, format...)...)
		r.want(t, exitUnsafe, "acknowledged records can be lost")
		if !strings.Contains(r.out, "bad") {
			t.Errorf("%v: the finding is not printed: %s", format, r.out)
		}
	}
}

// The rest is about the process itself: signals, pipes and the disk after a kill.

// A stream that is open keeps nobody from stopping.
func TestCtrlCEndsTheProgramInOrder(t *testing.T) {
	binary := build(t)
	stores := durableStores(t)
	for signal, store := range map[syscall.Signal]string{syscall.SIGINT: stores["sqlite"], syscall.SIGTERM: stores["postgres"]} {
		p := start(t, binary, "serve", "--store", store)
		t.Setenv("WEIR_BOOTSTRAP", p.kafka)
		weir(t, "hello\n", "produce", "greetings").want(t, exitOK)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.http+"/v1/topics/greetings/events?from=earliest", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		stream, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		lines := bufio.NewReader(stream.Body)
		for line := ""; !strings.Contains(line, "hello"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		p.signal(t, signal)
		if err := p.cmd.Wait(); err != nil || time.Since(begin) > 10*time.Second {
			t.Errorf("%s: %v after %s: %s", signal, err, time.Since(begin), p.out.String())
		}
		if _, err := io.ReadAll(lines); err != nil {
			t.Errorf("%s: the stream ended with %v", signal, err)
		}
	}
}

// A store that hangs, and does not even say goodbye, is left behind: nobody has to press Ctrl-C
// twice.
func TestStoppingLeavesADeadStoreBehind(t *testing.T) {
	binary := build(t)
	database := pgtest.Start(t)
	p := start(t, binary, "serve", "--store", database.URL())
	weir(t, "hello\n", "produce", "greetings", "--bootstrap", p.kafka).want(t, exitOK)
	database.Freeze()
	if r := weir(t, "hello\n", "produce", "greetings", "--bootstrap", p.kafka, "--timeout", "1s"); r.code == exitOK {
		t.Fatalf("acknowledged by a store that stands still: %+v", r)
	}
	p.signal(t, syscall.SIGTERM) // the record is still on its way to the store
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUnreachable {
		t.Errorf("ended with %v, want exit code %d: %s", err, exitUnreachable, p.out.String())
	}
	if want := fmt.Sprintf("waited=%v", stopMost); !strings.Contains(p.out.String(), "the process ends anyway") || !strings.Contains(p.out.String(), want) {
		t.Errorf("not because the store is dead, after %v: %s", stopMost, p.out.String())
	}
}

// A commit that waits for somebody else's lock is given up in the time for the log: the process
// ends in order.
func TestStoppingGivesUpACommitThatWaitsForALock(t *testing.T) {
	binary := build(t)
	url := mytest.URL(t)
	p := start(t, binary, "serve", "--store", url)
	weir(t, "hello\n", "produce", "greetings", "--bootstrap", p.kafka).want(t, exitOK)
	database, err := mysql.Open(t.Context(), url, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	client := database.Client()
	defer client.Close()
	other, err := client.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.ExecContext(t.Context(), "SELECT id FROM weir_guard WHERE id = 0 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if r := weir(t, "hello\n", "produce", "greetings", "--bootstrap", p.kafka, "--timeout", "1s"); r.code == exitOK {
		t.Fatalf("acknowledged while another transaction has the lock: %+v", r)
	}
	p.signal(t, syscall.SIGTERM) // the record is still on its way to the store
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, p.out.String())
	}
}

func TestAcknowledgedRecordsSurviveKill(t *testing.T) {
	binary := build(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	p := start(t, binary, "serve", "--store", url)
	t.Setenv("WEIR_BOOTSTRAP", p.kafka)
	weir(t, "one\ntwo\n", "produce", "greetings").want(t, exitOK, "2 records acknowledged")
	p.signal(t, syscall.SIGKILL)
	_ = p.cmd.Wait() // killed, as it should be
	p = start(t, binary, "serve", "--store", url)
	t.Setenv("WEIR_BOOTSTRAP", p.kafka)
	if r := weir(t, "", "consume", "greetings"); r.out != "one\ntwo\n" {
		t.Errorf("after the kill: %+v", r)
	}
}

func TestClosedPipeEndsConsumeWith141(t *testing.T) {
	binary := build(t)
	p := start(t, binary, "serve", "--store", "memory:")
	t.Setenv("WEIR_BOOTSTRAP", p.kafka)
	weir(t, strings.Repeat("a long line that fills the pipe\n", 10_000), "produce", "lines").want(t, exitOK)
	cmd := exec.Command(binary, "consume", "lines", "--follow")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitPipe {
		t.Errorf("ended with %v, want exit code %d", err, exitPipe)
	}
}

// process is a weir that runs as a process of its own.
type process struct {
	cmd         *exec.Cmd
	kafka, http string
	out         *lockedBuffer
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	return startAt(t, binary, "127.0.0.1:0", "127.0.0.1:0", args...)
}

// startAt is start at some addresses.
func startAt(t *testing.T, binary, kafka, http string, args ...string) *process {
	t.Helper()
	p := &process{out: &lockedBuffer{changed: make(chan struct{}, 1)}}
	p.cmd = exec.Command(binary, append(args, "--kafka", kafka, "--http", http)...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()
	})
	for {
		if m := readyLine.FindStringSubmatch(p.out.String()); m != nil {
			p.kafka, p.http = m[1], m[2]
			return p
		}
		select {
		case <-p.out.changed:
		case <-time.After(30 * time.Second):
			t.Fatalf("weir is not ready: %s", p.out.String())
		}
	}
}

// build builds weir once for all tests.
func build(t *testing.T) string {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var builtIn string // the directory, once there is one

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn) // what stays behind is in the system's temporary directory
	}
	os.Exit(code)
}

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-test-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	binary := filepath.Join(dir, "weir")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/weir-log/weir/cmd/weir").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weir: %w: %s", err, out)
	}
	return binary, nil
})
