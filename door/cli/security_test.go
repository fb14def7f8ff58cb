package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/weir-log/weir/internal/certtest"
)

// secured has the files that docs/security.md makes.
type secured struct {
	signer                    *certtest.Authority
	caFile, certFile, keyFile string
	signerFile                string // the authority that signed weir's certificate
	url                       string
}

func newSecured(t *testing.T) *secured {
	dir := t.TempDir()
	s := &secured{signer: certtest.New(t), caFile: filepath.Join(dir, "ca.crt"), certFile: filepath.Join(dir, "weir.crt"), keyFile: filepath.Join(dir, "weir.key"),
		url: "sqlite:" + filepath.Join(dir, "weir.db")}
	cert, key := s.signer.Issue(t, "weir", time.Hour)
	s.signerFile = filepath.Join(dir, "signer.crt")
	certtest.Write(t, s.signerFile, s.signer.PEM())
	certtest.Write(t, s.caFile, s.signer.PEM())
	certtest.Write(t, s.certFile, cert)
	certtest.Write(t, s.keyFile, key)
	return s
}

// key creates an API key as a user does, and returns its secret.
func (s *secured) key(t *testing.T, args ...string) string {
	t.Helper()
	r := weir(t, "", append([]string{"key", "create", "--store", s.url, "--output", "json"}, args...)...)
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || made.Secret == "" {
		t.Fatalf("%+v: %v", r, err)
	}
	return made.Secret
}

// One key opens every door, and somebody without rights is refused at every door.
func TestOneKeyOpensEveryDoor(t *testing.T) {
	s := newSecured(t)
	shop := s.key(t, "shop", "--access", "write", "--access", "read", "--access", "admin", "--topic", "orders.")
	other := s.key(t, "other", "--access", "write", "--access", "read", "--topic", "mails.")
	server := serve(t, "--store", s.url, "--kafka", "sasl_ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile)
	if out := server.out.String(); !strings.Contains(out, "sasl_ssl: with an API key") || strings.Contains(out, "weir produce") {
		t.Errorf("weir says %s", out)
	}
	trust := &tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost"}
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(server.kafka), kgo.AllowAutoTopicCreation(), kgo.DialTLSConfig(trust)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	login := func(user, secret string) kgo.Opt { return kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()) }
	if err := client(login("shop", shop)).ProduceSync(t.Context(), &kgo.Record{Topic: "orders.eu", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	err := client(login("other", other)).ProduceSync(t.Context(), &kgo.Record{Topic: "orders.eu", Value: []byte("two")}).FirstErr()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("over Kafka, a key for other topics: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := client().Ping(soon); err == nil {
		t.Error("over Kafka, a client without a key is let in")
	}
	if err := client(login("shop", other)).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("over Kafka, with another's key: %v", err)
	}

	s.checkCommands(t, server.kafka, shop, other)

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	defer web.CloseIdleConnections()
	for secret, want := range map[string]int{shop: 200, other: 403, "": 401} {
		req, err := http.NewRequest("GET", "https://"+server.http+"/v1/topics/orders.eu", nil)
		if err != nil {
			t.Fatal(err)
		}
		if secret != "" {
			req.Header.Set("Authorization", "Bearer "+secret)
		}
		response, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("over HTTP: %d, want %d", response.StatusCode, want)
		}
	}
}

// checkCommands runs weir's own commands against a listener with sasl_ssl, at which shop may do
// what other may not.
func (s *secured) checkCommands(t *testing.T, address, shop, other string) {
	t.Helper()
	over := func(key string, args ...string) result {
		t.Helper()
		t.Setenv("WEIR_API_KEY", key)
		return weir(t, "", append(args, "--bootstrap", address, "--protocol", "sasl_ssl", "--tls-ca", s.signerFile)...)
	}
	over(shop, "consume", "orders.eu").want(t, exitOK, "one")
	if r := over(other, "topic", "list"); r.code != exitOK || strings.Contains(r.out, "orders") {
		t.Errorf("a key for other topics lists %+v", r)
	}
	over(shop[:len(shop)-1]+"!", "topic", "list").want(t, exitUsage, "needs an API key, or a user")
	over(strings.Repeat("a", 5), "topic", "list").want(t, exitUsage, "WEIR_API_KEY")
	last := "a"
	if strings.HasSuffix(shop, last) {
		last = "b"
	}
	over(shop[:len(shop)-1]+last, "topic", "list").want(t, exitFailed, "refused the login")
	t.Setenv("WEIR_API_KEY", shop)
	weir(t, "", "topic", "list", "--bootstrap", address, "--protocol", "sasl_ssl", "--tls-ca", s.keyFile).want(t, exitConfig, "has no certificate")
}

// Whoever has a user and a password reaches with them what an API key reaches, over TLS and both
// protocols.
func TestCommandsLogInWithAPassword(t *testing.T) {
	s := newSecured(t)
	serve(t, "--store", s.url, "--kafka", "off").stop() // makes the store
	weir(t, "alices password", "user", "create", "alice", "--store", s.url).want(t, exitOK)
	weir(t, "", "acl", "create", "--store", s.url, "--principal", "User:alice", "--allow", "--operation", "all", "--topic", "orders.", "--prefixed").want(t, exitOK)
	server := serve(t, "--store", s.url, "--kafka", "sasl_ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile)
	right, wrong := filepath.Join(t.TempDir(), "right"), filepath.Join(t.TempDir(), "wrong")
	certtest.Write(t, right, []byte("alices password\n"))
	certtest.Write(t, wrong, []byte("another"))
	kafka := []string{"--bootstrap", server.kafka, "--protocol", "sasl_ssl", "--tls-ca", s.signerFile}
	web := []string{"--server", "https://" + server.http, "--tls-ca", s.signerFile}
	as := func(to []string, file string, args ...string) result {
		return weir(t, "", slices.Concat(args, to, []string{"--user", "alice", "--password-file", file})...)
	}
	as(kafka, right, "topic", "create", "orders.eu").want(t, exitOK)
	as(kafka, right, "topic", "create", "mails.eu").want(t, exitFailed, "AUTHORIZATION")
	as(kafka, wrong, "topic", "list").want(t, exitFailed, "refused the login")
	as(web, right, "stream", "category", "create", "orders.log").want(t, exitOK)
	as(web, right, "stream", "category", "create", "mails.log").want(t, exitFailed, "needs CREATE")
	as(web, wrong, "stream", "category", "list").want(t, exitFailed, "--password-file")
	weir(t, "", "stream", "category", "list", "--server", "https://"+server.http, "--user", "alice", "--password-file", right).want(t, exitUnreachable, "certificate")
	weir(t, "", append([]string{"stream", "category", "list", "--user", "alice"}, web...)...).want(t, exitUsage, "without --password-file")
	weir(t, "", append([]string{"stream", "category", "list", "--password-file", right}, web...)...).want(t, exitUsage, "without --user")
	as(append(web, "--api-key", "x"), right, "stream", "category", "list").want(t, exitUsage, "both given")
	as(kafka, filepath.Join(t.TempDir(), "none"), "topic", "list").want(t, exitConfig, "--password-file")
}

func TestKafkaListenersHaveTheirOwnRules(t *testing.T) {
	s := newSecured(t)
	clients := certtest.New(t)
	certtest.Write(t, s.caFile, clients.PEM())
	args := []string{"--store", "memory:", "--kafka", "a=127.0.0.1:0", "--kafka", "b=ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile, "--tls-client-ca", s.caFile}
	server := serve(t, args...)
	if out := server.out.String(); !strings.Contains(out, "ssl: with a client certificate") || !strings.Contains(out, "without API keys, for this machine") {
		t.Errorf("weir says %s", out)
	}
	cert, key := clients.Issue(t, "billing", time.Hour)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string][]tls.Certificate{"with a certificate": {pair}, "without": nil} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(server.kafka), kgo.DialTLSConfig(&tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost", Certificates: own}))
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := cl.Ping(soon); (err == nil) != (own != nil) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		cl.Close()
	}
	certtest.Write(t, s.caFile, []byte("hello"))
	weir(t, "", append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...).want(t, exitConfig, "ca.crt is not a PEM file")
}

// Rights of a certificate come from ACLs and --super-users. weir says so where there are none,
// because certificates once allowed everything.
func TestCertificatesNeedRights(t *testing.T) {
	s := newSecured(t)
	cert, key := s.signer.Issue(t, "billing", time.Hour)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	const warned = "clients that show a certificate may do nothing"
	args := []string{"--store", s.url, "--kafka", "ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile, "--tls-client-ca", s.caFile}
	produces := func(server *server) error {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(server.kafka), kgo.DialTLSConfig(&tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{pair}}), kgo.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		return cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr()
	}
	one := serve(t, args...)
	if err := produces(one); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(one.out.String(), warned) {
		t.Errorf("without ACLs: %v; weir says %s", err, one.out.String())
	}
	one.stop()
	weir(t, "", "acl", "create", "--store", s.url, "--principal", "User:CN=billing,O=tests", "--allow", "--operation", "write", "--operation", "create", "--topic", "orders").want(t, exitOK, "User:CN=billing,O=tests")
	for _, more := range [][]string{nil, {"--tls-principal-rule", "RULE:^CN=(.*?),.*$/$1/", "--super-users", "User:billing"}, {"--super-users", "User:CN=billing,O=tests"}} {
		next := serve(t, append(args, more...)...)
		if err := produces(next); err != nil || strings.Contains(next.out.String(), warned) {
			t.Errorf("with %v: %v; weir says %s", more, err, next.out.String())
		}
		next.stop()
	}
	other := serve(t, append(args, "--tls-principal-rule", "RULE:^CN=(.*?),.*$/$1/U", "--tls-principal-rule", "DEFAULT")...)
	if err := produces(other); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("by another name: %v", err)
	}
}
