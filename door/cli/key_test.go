package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/store"
)

// page is what the tests read: the first records of the topic greetings.
const page = "/v1/topics/greetings/partitions/0/events"

// ask reads the page, with a key unless it is empty, and returns the status.
func (s *server) ask(t *testing.T, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.http+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// waitFor asks until the status is the one wanted: a change of keys takes a moment to reach a
// server.
func (s *server) waitFor(t *testing.T, key string, want int) {
	t.Helper()
	again, late := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		got := s.ask(t, key)
		if got == want {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("with key %.14q the answer stays %d, want %d; weir says: %s", key, got, want, s.out.String())
		}
	}
}

func TestKeysAreRotatedBesideARunningServer(t *testing.T) {
	for name, url := range durableStores(t) {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "--store", url)
			if !strings.Contains(s.out.String(), "for this machine, until there is an API key") {
				t.Errorf("nobody said that there are no keys: %s", s.out.String())
			}
			weir(t, "hello\n", "produce", "greetings").want(t, exitOK)
			if got := s.ask(t, ""); got != 200 {
				t.Fatalf("without any key in the store: %d, want 200", got)
			}
			var first, second keyMade
			decode(t, weir(t, "", "key", "create", "billing", "--access", "read", "--topic", "greet", "--store", url, "--output", "json"), &first)
			s.waitFor(t, first.Secret, 200)
			s.waitFor(t, "", 401)
			decode(t, weir(t, "", "key", "create", "billing", "--access", "read,write", "--all-topics", "--all-groups", "--expires", "90d", "--store", url, "--output", "json"), &second)
			s.waitFor(t, second.Secret, 200)
			var rotated keyMade
			decode(t, weir(t, "", "key", "rotate", first.ID, "--store", url, "--output", "json"), &rotated)
			s.waitFor(t, rotated.Secret, 200)
			s.waitFor(t, first.Secret, 200)
			if rotated.Name != "billing" || !slices.Equal(rotated.Topics, first.Topics) || rotated.AllTopics {
				t.Errorf("%+v was rotated to %+v", first.Key, rotated.Key)
			}
			weir(t, "", "key", "delete", first.ID, "--store", url, "--yes").want(t, exitOK, "revoked key "+first.ID+" for billing")
			s.waitFor(t, first.Secret, 401)
			s.waitFor(t, second.Secret, 200)
			weir(t, "", "key", "rotate", first.ID, "--store", url).want(t, exitFailed, "revoked", "weir key create")

			r := weir(t, "", "key", "list", "--store", url)
			r.want(t, exitOK, "ID ", first.ID+"  billing  read        greet", "revoked", second.ID+"  billing  read,write  (all)", "good")
			var third keyMade
			decode(t, weir(t, "", "key", "create", "shop", "--access", "read", "--topic", "orders.", "--group", "shop.", "--group", "Été/", "--store", url, "--output", "json"), &third)
			listed := weir(t, "", "key", "list", "--store", url)
			for id, want := range map[string]string{first.ID: "greet* greet*", second.ID: "(all) (all)", third.ID: "orders.* shop.*,Été/*"} {
				_, row, _ := strings.Cut(listed.out, id)
				if fields := strings.Fields(row); len(fields) < 4 || fields[2]+" "+fields[3] != want {
					t.Errorf("topics and groups of key %s: want %s in\n%s", id, want, listed.out)
				}
			}
			weir(t, "", "key", "list", "--store", url, "--output", "json").want(t, exitOK, `"groups": [`, `"shop."`)
			if strings.Contains(r.out, first.Secret[14:]) || strings.Contains(s.out.String(), first.Secret[14:]) {
				t.Errorf("a secret is shown: %s%s", r.out, s.out.String())
			}
			if code := s.stop(); code != exitOK {
				t.Fatalf("Ctrl-C: exit code %d: %s", code, s.out.String())
			}
			s = serve(t, "--store", url)
			if got := s.ask(t, second.Secret); got != 200 {
				t.Errorf("the second key, after a restart: %d", got)
			}
			if got := s.ask(t, ""); got != 401 {
				t.Errorf("without a key, after a restart: %d", got)
			}
		})
	}
}

func TestPublicHTTPNeedsAKeyFirst(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	args := []string{"--store", url, "--http", "0.0.0.0:0"}
	weir(t, "", append([]string{"serve", "--kafka", "127.0.0.1:0"}, args...)...).want(t, exitUnsafe, "no API keys", "weir key create", "--insecure")
	r := weir(t, "", "key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups", "--store", url)
	r.want(t, exitOK, "for ops, in sqlite:", "access admin, topics (all), groups (all)", "Authorization: Bearer", "weir_")
	s := serve(t, args...)
	if !strings.Contains(s.out.String(), "with an API key") || !strings.Contains(s.out.String(), "--tls-cert") {
		t.Errorf("nobody warned that keys travel in the open: %s", s.out.String())
	}
	s.stop()
	s = serve(t, "--store", "memory:", "--http", "0.0.0.0:0", "--insecure")
	if !strings.Contains(s.out.String(), "for everybody, until there is an API key") {
		t.Errorf("nobody said that it is open: %s", s.out.String())
	}
}

// shown is the command line for curl that starts so, in what weir printed.
func shown(t *testing.T, printed, start string) string {
	t.Helper()
	for line := range strings.Lines(printed) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") && strings.Contains(line, start) {
			return line
		}
	}
	t.Fatalf("no command line for curl with %q in %s", start, printed)
	return ""
}

// curl does what a command line for curl says, and returns the status.
func curl(t *testing.T, line string) int {
	t.Helper()
	words := regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1)[1:]
	method, body, header := "GET", "", http.Header{}
	for len(words) > 1 {
		switch value := strings.Trim(words[1], `'"`); words[0] {
		case "-d":
			method, body = "POST", value
			if header.Get("Content-Type") == "" {
				header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
			}
		case "-H":
			name, value, _ := strings.Cut(value, ": ")
			header.Set(name, value)
		default:
			t.Fatalf("%s of %s", words[0], line)
		}
		words = words[2:]
	}
	r, err := http.NewRequest(method, words[0], strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// What weir prints for people to try works, and in the order in which it stands there.
func TestPrintedCommandLinesWork(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	s := serve(t, "--store", url)
	for _, line := range []string{shown(t, s.out.String(), "/v1/topics"), shown(t, s.out.String(), "/v1/topics/greetings/events")} {
		if status := curl(t, line); status >= 300 {
			t.Errorf("%s: %d", line, status)
		}
	}
	for _, scope := range [][]string{{"--access", "read", "--all-topics", "--all-groups"}, {"--access", "write", "--all-topics"},
		{"--access", "admin", "--all-topics", "--all-groups"}, {"--access", "read,write", "--all-topics", "--group", "a"},
		{"--access", "read", "--topic", "greet"}, {"--access", "write", "--topic", "greet"}, {"--access", "admin", "--topic", "greet"},
		{"--access", "read", "--topic-name", "greetings"}, {"--access", "write", "--topic-name", "greetings"}} {
		r := weir(t, "", append([]string{"key", "create", "try", "--store", url}, scope...)...)
		r.want(t, exitOK)
		secret := regexp.MustCompile(`weir_\w+`).FindString(r.out)
		s.waitFor(t, "", 401)
		topic := "greetings"
		if scope[2] == "--topic" {
			topic = "ings"
		}
		line := strings.NewReplacer("$SECRET", secret, "127.0.0.1:8080", s.http, "TOPIC", topic).Replace(shown(t, r.out, "/v1/topics"))
		waitUntil(t, line, func() bool { return curl(t, line) == 200 })
	}
}

// waitUntil waits for what takes a moment to reach a server.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	again, late := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// To look for keys makes no store, and to make one where no server looks is told.
func TestKeysGoIntoTheStoreThatIsMeant(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	weir(t, "", "key", "list").want(t, exitConfig, "the store sqlite:./weir-data/weir.db does not exist", "--store")
	weir(t, "", "key", "delete", "aaaaaaaa", "--yes").want(t, exitConfig, "the store sqlite:./weir-data/weir.db does not exist")
	if found, err := os.ReadDir(dir); err != nil || len(found) > 0 {
		t.Errorf("there is %v, %v", found, err)
	}
	weir(t, "", "key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups").want(t, exitOK, "The store sqlite:./weir-data/weir.db does not exist yet", "created key")
	if r := weir(t, "", "key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"); r.code != exitOK || strings.Contains(r.err, "does not exist yet") {
		t.Errorf("%+v", r)
	}
	weir(t, "", "key", "list").want(t, exitOK, "ops")
}

func TestKeyCommandsThatCannotWork(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	empty, err := store.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"create", "a"}, exitUsage, "--access"},
		{[]string{"create", "a", "--access", "root"}, exitUsage, "read"},
		{[]string{"create", "", "--access", "read", "--topic", "a"}, exitUsage, "it has 0 bytes"},
		{[]string{"create", "a", "--access", "read"}, exitUsage, "--all-topics"},
		{[]string{"create", "a", "--access", "read", "--topic", ""}, exitUsage, "--topic is empty"},
		{[]string{"create", "a", "--access", "read", "--topic="}, exitUsage, "--topic is empty"},
		{[]string{"create", "a", "--access", "read", "--topic", "orders.", "--topic", ""}, exitUsage, "--topic is empty"},
		{[]string{"create", "a", "--access", "read", "--topic", "orders.,"}, exitUsage, "it contains ','"},
		{[]string{"create", "a", "--access", "read", "--topic", "orders.", "--group", ""}, exitUsage, "--group is empty"},
		{[]string{"create", "a", "--access", "read", "--topic", "*"}, exitUsage, "it contains '*'"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--all-topics"}, exitUsage, "contradict"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--group", "a", "--all-groups"}, exitUsage, "contradict"},
		{[]string{"create", "a", "--access", "read", "--group", "billing"}, exitUsage, "--all-topics"},
		{[]string{"create", "a", "--access", "read", "--all-groups"}, exitUsage, "--all-topics"},
		{[]string{"create", "a", "--access", "read", "--all-topics"}, exitUsage, "--all-groups"},
		{[]string{"create", "a", "--access", "read", "--topic", "a/*"}, exitUsage, "it contains '/'"},
		{[]string{"create", "a", "--access", "read", "--topic-name", "a*"}, exitUsage, "it contains '*'"},
		{[]string{"create", "a", "--access", "read", "--topic-name", ""}, exitUsage, "--topic-name is empty"},
		{[]string{"create", "a", "--access", "read", "--topic-name", "a", "--all-topics"}, exitUsage, "contradict"},
		{[]string{"create", "a", "--access", "read", "--topic-name", "a", "--group-name", "a", "--all-groups"}, exitUsage, "contradict"},
		{[]string{"create", "a", "--access", "read", "--queue-name", "a", "--all-queues"}, exitUsage, "contradict"},
		{[]string{"create", "a", "--access", "read", "--topic-name", "a", "--group-name", "*"}, exitUsage, "all groups"},
		{[]string{"create", "a", "--access", "metrics", "--topic", "a"}, exitUsage, "metrics alone"},
		{[]string{"create", "a", "--access", "metrics", "--all-groups"}, exitUsage, "metrics alone"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--group", "a\nb"}, exitUsage, "cannot be printed"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--group", strings.Repeat("a", 513)}, exitUsage, "it has 513 bytes; 1 to 512 are allowed"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--expires", "90"}, exitUsage, "the unit is missing"},
		{[]string{"create", "a", "--access", "read", "--topic", "a", "--not-before", "2100-01-01T00:00:00Z", "--expires", "1d"}, exitUsage, "the start of validity, 2100"},
		{[]string{"rotate", "aaaaaaaa"}, exitFailed, "weir key list"},
		{[]string{"delete", "aaaaaaaa"}, exitUsage, "--yes"},
		{[]string{"delete", "aaaaaaaa", "--yes"}, exitFailed, "weir key list"},
		{[]string{"list", "--store", "memory:"}, exitConfig, "give the store of the server"},
		{[]string{"list", "--store", "postgres://weir:hunter2@127.0.0.1:1/weir"}, exitUnreachable, "check that it is running"},
	} {
		args := append([]string{"key"}, c.args...)
		if !strings.Contains(strings.Join(args, " "), "--store") {
			args = append(args, "--store", url)
		}
		weir(t, "", args...).want(t, c.code, c.text)
	}
	if r := weir(t, "", "key", "list", "--store", url, "--output", "json"); r.out != "[]\n" {
		t.Errorf("something was made: %+v", r)
	}
}

// What a key is for is said on the command line: a variable that is set for other commands neither
// limits nor widens it.
func TestEnvironmentSaysNothingOfAKeysScope(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	for name, value := range map[string]string{
		"WEIR_GROUP": "billing", "WEIR_TOPIC": "users.", "WEIR_ALL_TOPICS": "true", "WEIR_ALL_GROUPS": "true", "WEIR_ACCESS": "admin", "WEIR_EXPIRES": "1h",
	} {
		t.Setenv(name, value)
	}
	weir(t, "", "key", "create", "a", "--topic", "orders.", "--store", url).want(t, exitUsage, "--access")
	weir(t, "", "key", "create", "a", "--access", "read", "--store", url).want(t, exitUsage, "--all-topics")
	var key keyMade
	decode(t, weir(t, "", "key", "create", "a", "--access", "read", "--topic", "orders.", "--store", url, "--output", "json"), &key)
	if want := []string{"orders."}; !slices.Equal(key.Topics, want) || !slices.Equal(key.Groups, want) || key.AllTopics || key.AllGroups || !key.Expires.IsZero() {
		t.Errorf("the key is %+v", key.Key)
	}
	var all keyMade
	decode(t, weir(t, "", "key", "create", "b", "--access", "read", "--all-topics", "--group", "a,b", "--store", url, "--output", "json"), &all)
	if !all.AllTopics || all.AllGroups || !slices.Equal(all.Groups, []string{"a,b"}) {
		t.Errorf("the key is %+v", all.Key)
	}
}

func TestServeSpeaksTLS(t *testing.T) {
	lender := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	lender.Close()
	lent := lender.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(lent.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "weir.crt"), filepath.Join(dir, "weir.key")
	for file, block := range map[string]pem.Block{certFile: {Type: "CERTIFICATE", Bytes: lent.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--tls-cert", certFile}, exitUsage, "must be given together"},
		{[]string{"--tls-cert", certFile, "--tls-key", certFile}, exitConfig, "weir.crt holds CERTIFICATE, and no PRIVATE KEY"},
		{[]string{"--tls-cert", certFile, "--tls-key", filepath.Join(dir, "none.key")}, exitConfig, "none.key"},
	} {
		weir(t, "", append([]string{"serve", "--store", "memory:", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"}, c.args...)...).want(t, c.code, c.text)
	}
	s := serve(t, "--store", "memory:", "--tls-cert", certFile, "--tls-key", keyFile)
	trusted := x509.NewCertPool()
	trusted.AddCert(lender.Certificate())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + s.http + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || !strings.Contains(s.out.String(), "https://"+s.http) {
		t.Errorf("%s; weir says %s", response.Status, s.out.String())
	}
	s.stop()
	if err := os.Chmod(keyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "serve", "--store", "memory:", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tls-cert", certFile, "--tls-key", keyFile).
		want(t, exitUnsafe, keyFile, "chmod 600")
}

// What was published over HTTP is a span at the collector that OpenTelemetry's variables name.
func TestSpansGoToTheCollector(t *testing.T) {
	got := make(chan []byte, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			got <- body
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	s := serve(t, "--store", "memory:")
	weir(t, "hello\n", "produce", "greetings").want(t, exitOK)
	response, err := http.Post("http://"+s.http+"/v1/topics/greetings/events", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if code := s.stop(); code != exitOK { // what was not sent yet is sent now
		t.Fatalf("Ctrl-C: exit code %d: %s", code, s.out.String())
	}
	close(got)
	var all []byte
	for body := range got {
		all = append(all, body...)
	}
	for _, text := range []string{"publish greetings", "flush", "service.name", "weir"} {
		if !bytes.Contains(all, []byte(text)) {
			t.Errorf("no %q in the spans, %d bytes; weir says: %s", text, len(all), s.out.String())
		}
	}

	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	weir(t, "", "serve", "--store", "memory:", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0").want(t, exitConfig, "http/protobuf")
}

// A collector that is away, or stands still, holds up neither the work nor the end of it.
func TestSpansWithoutACollectorHarmNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}))
	defer collector.Close()
	defer cancel()
	for _, endpoint := range []string{collector.URL, "http://127.0.0.1:1"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		s := serve(t, "--store", "memory:")
		weir(t, "hello\n", "produce", "greetings").want(t, exitOK, "1 record acknowledged")
		if code := s.stop(); code != exitOK || !strings.Contains(s.out.String(), "cannot send spans") {
			t.Errorf("Ctrl-C: exit code %d: %s", code, s.out.String())
		}
	}
}

// A key may be for work queues alone; it has no topics then, and no groups.
func TestKeyForQueuesAlone(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	weir(t, "", "key", "create", "mailer", "--access", "read", "--access", "write", "--queue", "mail", "--queue", "bills.", "--store", url).
		want(t, exitOK, "access read,write, topics (none), groups (none), queues bills.* mail*", "http://127.0.0.1:8080/v1/queues\n")
	weir(t, "", "key", "create", "sender", "--access", "write", "--queue", "mail.", "--store", url).
		want(t, exitOK, "-d hello http://127.0.0.1:8080/v1/queues/mail.QUEUE/messages")
	weir(t, "", "key", "create", "shop", "--access", "write", "--topic", "orders.", "--store", url).want(t, exitOK, "queues orders.*")
	weir(t, "", "key", "list", "--store", url).want(t, exitOK, "GROUPS", "QUEUES", "bills.*,mail*", "(none)")
	weir(t, "", "key", "create", "x", "--access", "read", "--queue", "a", "--all-queues", "--store", url).want(t, exitUsage, "contradict")
	weir(t, "", "key", "create", "x", "--access", "read", "--queue", "", "--store", url).want(t, exitUsage, "is empty")
	weir(t, "", "key", "create", "x", "--access", "read", "--queue", "a/b", "--store", url).want(t, exitUsage, "queue prefix")
}

// A name is said with a flag of its own, and what a prefix is also for is told.
func TestKeyForOneQueue(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	create := func(args ...string) result {
		t.Helper()
		r := weir(t, "", append([]string{"key", "create", "--store", url}, args...)...)
		r.want(t, exitOK, "created key")
		return r
	}
	one := create("mailer", "--access", "read", "--queue-name", "mail")
	one.want(t, exitOK, "topics (none), groups (none), queues mail\n")
	if prefix := create("mailers", "--access", "read", "--queue", "mail", "--queue", "bills."); !strings.Contains(prefix.out, "queues bills.* mail*\n") ||
		!strings.Contains(prefix.err, "--queue mail is a prefix: the key is for mail2, too. --queue-name mail is exactly one queue.\n") || strings.Contains(prefix.err, "bills.") || strings.Contains(one.err, "is a prefix") {
		t.Errorf("of a name weir says %s, of prefixes %s %s", one.err, prefix.out, prefix.err)
	}
	create("shop", "--access", "write", "--topic-name", "orders", "--topic", "bills.", "--queue", "x.").
		want(t, exitOK, "topics orders bills.*, groups orders bills.*, queues x.*", "-d hello http://127.0.0.1:8080/v1/topics/orders/events")
	create("sender", "--access", "write", "--queue-name", "mail").want(t, exitOK, "-d hello http://127.0.0.1:8080/v1/queues/mail/messages")
	create("prometheus", "--access", "metrics").want(t, exitOK, "access metrics, topics (none), groups (none), queues (none)", "http://127.0.0.1:8080/metrics\n")
	listed := weir(t, "", "key", "list", "--store", url)
	for name, want := range map[string]string{
		"mailer": "read (none) (none) mail", "mailers": "read (none) (none) bills.*,mail*", "shop": "write orders,bills.* orders,bills.* x.*", "prometheus": "metrics (none) (none) (none)",
	} {
		_, row, _ := strings.Cut(listed.out, "  "+name+" ")
		if fields := strings.Fields(row); len(fields) < 4 || strings.Join(fields[:4], " ") != want {
			t.Errorf("key %s: want %s in\n%s", name, want, listed.out)
		}
	}
	weir(t, "", "key", "list", "--store", url, "--output", "json").want(t, exitOK, `"queue_names": [`, `"topic_names": [`)
}
