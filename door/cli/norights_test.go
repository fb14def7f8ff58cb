package cli

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/use/audit"
)

// basic is the Authorization header of a user (RFC 7617).
func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// visitor is a client for all requests.
type visitor struct {
	*kadm.Client
	records *kgo.Client
}

// doors is a server where clients show who they are in every way.
type doors struct {
	*secured
	server        *server
	byCertificate string // address for Kafka clients with certificates
	trust         *tls.Config
	signer        jose.Signer // of tokens
}

// openDoors starts a server. The super user is User:admin, and certificates are named by their
// common name.
func openDoors(t *testing.T, s *secured) *doors {
	t.Helper()
	signing, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "1", Key: signing.Public()}}})
	if err != nil {
		t.Fatal(err)
	}
	jwksFile := filepath.Join(t.TempDir(), "jwks.json")
	certtest.Write(t, jwksFile, jwks)
	d := &doors{secured: s, trust: &tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost"}}
	if d.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: signing}}, nil); err != nil {
		t.Fatal(err)
	}
	d.server = serve(t, "--store", s.url, "--kafka", "ssl://127.0.0.1:0", "--kafka", "sasl_ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile, "--tls-client-ca", s.caFile,
		"--tls-principal-rule", "RULE:^CN=(.*?),.*$/$1/", "--super-users", "User:admin", "--oauth-jwks", jwksFile, "--oauth-issuer", "https://id.example.org", "--oauth-audience", "weir")
	d.byCertificate = regexp.MustCompile(`Kafka  (\S+)  ssl:`).FindStringSubmatch(d.server.out.String())[1]
	return d
}

// token is a token with a user's name.
func (d *doors) token(t *testing.T, name string) string {
	t.Helper()
	token, err := jwt.Signed(d.signer).Claims(map[string]any{"iss": "https://id.example.org", "aud": "weir", "sub": name, "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// certified is TLS with a certificate that has a user's name.
func (d *doors) certified(t *testing.T, name string) *tls.Config {
	t.Helper()
	cert, key := d.secured.signer.Issue(t, name, time.Hour)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	secured := d.trust.Clone()
	secured.Certificates = []tls.Certificate{pair}
	return secured
}

// client is a Kafka client.
func (d *doors) client(t *testing.T, opts ...kgo.Opt) visitor {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.server.kafka), kgo.DialTLSConfig(d.trust), kgo.AllowAutoTopicCreation(), kgo.RecordRetries(0), kgo.UnknownTopicRetries(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return visitor{kadm.NewClient(cl), cl}
}

// web sends an HTTP request, and returns the status and the body of the answer.
func (d *doors) web(t *testing.T, secured *tls.Config, auth, method, path, body string) (int, string) {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: secured}}
	defer web.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+d.server.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	answer, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(read)
}

// The same rules judge at every door, however a user shows who it is: what they allow is done, and
// what they do not allow is refused.
func TestRightsHoldAtEveryDoor(t *testing.T) {
	s := newSecured(t)
	serve(t, "--store", s.url, "--kafka", "off").stop() // makes the store
	weir(t, "alices password", "user", "create", "alice", "--store", s.url).want(t, exitOK)
	weir(t, "", "acl", "create", "--store", s.url, "--principal", "User:alice", "--allow", "--operation", "read", "--operation", "write", "--operation", "create", "--topic", "orders.", "--group", "billing", "--prefixed").want(t, exitOK)
	weir(t, "", "acl", "create", "--store", s.url, "--principal", "User:alice", "--deny", "--operation", "all", "--topic", "orders.secret").want(t, exitOK)
	d := openDoors(t, s)
	password, token, certificate := basic("alice", "alices password"), "Bearer "+d.token(t, "alice"), d.certified(t, "alice")
	for name, c := range map[string]struct {
		kafka []kgo.Opt
		auth  string
		tls   *tls.Config
	}{
		"password":    {[]kgo.Opt{kgo.SASL(scram.Auth{User: "alice", Pass: "alices password"}.AsSha256Mechanism())}, password, d.trust},
		"token":       {[]kgo.Opt{kgo.SASL(oauth.Auth{Token: d.token(t, "alice")}.AsMechanism())}, token, d.trust},
		"certificate": {[]kgo.Opt{kgo.SeedBrokers(d.byCertificate), kgo.DialTLSConfig(certificate)}, "", certificate},
	} {
		cl := d.client(t, c.kafka...)
		topic := "orders." + name
		if err := produceAs(t, cl, topic); err != nil {
			t.Errorf("over Kafka, by %s: produce: %v", name, err)
		}
		if err := produceAs(t, cl, "orders.secret"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("over Kafka, by %s: produce what a rule denies: %v", name, err)
		}
		for _, try := range []struct {
			method, path, body string
			want               int
			has                string
		}{
			{"POST", "/v1/topics/" + topic + "/events", `"two"`, 200, ""},
			{"GET", "/v1/topics/" + topic + "/partitions/0/events", "", 200, `one`},
			{"GET", "/v1/topics", "", 200, topic},
			{"POST", "/v1/topics", `{"name": "` + topic + `.new"}`, 201, ""},
			{"POST", "/v1/groups/billing/members", `{"topics": ["` + topic + `"]}`, 201, ""},
			{"POST", "/v1/topics/orders.secret/events", `"x"`, 403, ""},
			{"POST", "/v1/topics", `{"name": "invoices"}`, 403, ""},
			{"DELETE", "/v1/topics/" + topic, "", 403, ""},
			{"GET", "/v1/groups/others", "", 403, ""},
		} {
			if status, body := d.web(t, c.tls, c.auth, try.method, try.path, try.body); status != try.want || !strings.Contains(body, try.has) {
				t.Errorf("over HTTP, by %s: %s %s: %d %s, want %d and %q", name, try.method, try.path, status, body, try.want, try.has)
			}
		}
	}
	if status, body := d.web(t, d.trust, "Bearer "+d.token(t, "admin"), "DELETE", "/v1/topics/orders.token", ""); status != 204 {
		t.Errorf("a super user deletes a topic: %d %s", status, body)
	}
	// Whoever does not show who it is may do nothing, although there are no API keys and it is on
	// the same machine.
	if status, body := d.web(t, d.trust, "", "GET", "/v1/topics", ""); status != 401 {
		t.Errorf("nobody lists topics: %d %s", status, body)
	}
}

// Somebody without rights is refused, by every door, whoever it is: it changes nothing, and learns
// nothing.
func TestWithoutRightsEveryDoorIsShut(t *testing.T) {
	s := newSecured(t)
	ops := s.key(t, "ops", "--access", "admin", "--all-topics", "--all-groups")
	others := s.key(t, "somebody", "--access", "admin", "--topic", "others.")
	onlyQueues := s.key(t, "somebody", "--access", "admin", "--queue", "others.")
	revoked := s.key(t, "gone", "--access", "admin", "--all-topics", "--all-groups")
	weir(t, "", "key", "delete", strings.Split(revoked, "_")[1], "--store", s.url, "--yes").want(t, exitOK)
	weir(t, "somebodys password", "user", "create", "somebody", "--store", s.url).want(t, exitOK)

	d := openDoors(t, s)
	trust, token, certified, byCertificate := d.trust, d.token(t, "somebody"), d.certified(t, "somebody"), d.byCertificate
	client := func(opts ...kgo.Opt) visitor { return d.client(t, opts...) }
	byKey := func(name, secret string) kgo.Opt { return kgo.SASL(plain.Auth{User: name, Pass: secret}.AsMechanism()) }
	admin := client(byKey("ops", ops))
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "secret.orders"); err != nil {
		t.Fatal(err)
	}
	if err := produceAs(t, admin, "secret.orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CommitOffsets(t.Context(), "secret.group", kadm.OffsetsFromRecords(kgo.Record{Topic: "secret.orders"})); err != nil {
		t.Fatal(err)
	}

	for name, cl := range map[string]visitor{
		"a key for other topics": client(byKey("somebody", others)),
		"a key for queues":       client(byKey("somebody", onlyQueues)),
		"a user":                 client(kgo.SASL(scram.Auth{User: "somebody", Pass: "somebodys password"}.AsSha256Mechanism())),
		"a token":                client(kgo.SASL(oauth.Auth{Token: token}.AsMechanism())),
		"a certificate":          client(kgo.SeedBrokers(byCertificate), kgo.DialTLSConfig(certified)),
	} {
		for what, err := range triesOverKafka(t, cl) {
			if !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.GroupAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
				t.Errorf("over Kafka, %s: %s: %v", name, what, err)
			}
		}
		if seen, err := cl.ListTopics(t.Context()); err != nil || len(seen) > 0 {
			t.Errorf("over Kafka, %s sees the topics %v: %v", name, seen.Names(), err)
		}
		if seen, err := cl.ListGroups(t.Context()); err != nil || len(seen) > 0 {
			t.Errorf("over Kafka, %s sees the groups %v: %v", name, seen.Groups(), err)
		}
	}
	for name, cl := range map[string]visitor{
		"nobody":                 client(),
		"a revoked key":          client(byKey("gone", revoked)),
		"a wrong password":       client(kgo.SASL(scram.Auth{User: "somebody", Pass: "another password"}.AsSha256Mechanism())),
		"a token for others":     client(kgo.SASL(oauth.Auth{Token: token + "A"}.AsMechanism())),
		"no certificate":         client(kgo.SeedBrokers(byCertificate)),
		"a certificate for SASL": client(kgo.DialTLSConfig(certified)),
	} {
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := cl.ListTopics(soon); err == nil {
			t.Errorf("over Kafka, %s is let in", name)
		}
		cancel()
	}

	for name, c := range map[string]struct {
		auth string
		tls  *tls.Config
		want int
	}{
		"nobody":                 {"", trust, 401},
		"a certificate":          {"", certified, 403},
		"a revoked key":          {"Bearer " + revoked, trust, 401},
		"a token":                {"Bearer " + token, trust, 403},
		"a forged token":         {"Bearer " + token + "A", trust, 401},
		"a user":                 {basic("somebody", "somebodys password"), trust, 403},
		"a wrong password":       {basic("somebody", "another password"), trust, 401},
		"no user":                {basic("nobody", "somebodys password"), trust, 401},
		"a key for other topics": {"Bearer " + others, trust, 403},
		"a key for queues":       {"Bearer " + onlyQueues, trust, 403},
	} {
		for _, try := range []struct{ method, path, body string }{
			{"GET", "/v1/topics/secret.orders", ""}, {"GET", "/v1/topics/secret.orders/partitions/0/events", ""}, {"GET", "/v1/topics/secret.orders/events", ""},
			{"POST", "/v1/topics/secret.orders/events", `{"value": "x"}`}, {"POST", "/v1/topics", `{"name": "secret.new"}`}, {"DELETE", "/v1/topics/secret.orders", ""},
			{"GET", "/v1/groups/secret.group", ""}, {"DELETE", "/v1/groups/secret.group", ""}, {"POST", "/v1/groups/secret.group/members", `{"topics": ["secret.orders"]}`},
			{"POST", "/v1/queues", `{"name": "secret.queue"}`}, {"POST", "/v1/categories", `{"name": "secret.streams"}`}, {"POST", "/v1/queues/secret.queue/messages", `{}`},
		} {
			if status, body := d.web(t, c.tls, c.auth, try.method, try.path, try.body); status != c.want || strings.Contains(body, "offset") {
				t.Errorf("over HTTP, %s: %s %s: %d %s, want %d", name, try.method, try.path, status, body, c.want)
			}
		}
	}

	ends, err := admin.ListEndOffsets(t.Context())
	topics, errTopics := admin.ListTopics(t.Context())
	delete(topics, audit.Topic) // it tells what was set up
	committed, errGroup := admin.FetchOffsets(t.Context(), "secret.group")
	if at, ok := ends.Lookup("secret.orders", 0); err != nil || errTopics != nil || errGroup != nil || !ok || at.Offset != 1 || len(topics) != 1 || len(committed) != 1 {
		t.Errorf("in the end there are %v, %v and %v: %v, %v, %v", ends, topics.Names(), committed, err, errTopics, errGroup)
	}
}

// triesOverKafka does what a client without rights may not, and returns the errors.
func triesOverKafka(t *testing.T, cl visitor) map[string]error {
	t.Helper()
	ctx, tried := t.Context(), map[string]error{}
	tried["produce"] = produceAs(t, cl, "secret.orders")
	tried["produce to a new topic"] = produceAs(t, cl, "secret.new")
	one := func(err, inside error) error {
		if err != nil {
			return err
		}
		return inside
	}
	created, err := cl.CreateTopics(ctx, 1, 1, nil, "secret.new")
	tried["create a topic"] = one(err, created["secret.new"].Err)
	deleted, err := cl.DeleteTopics(ctx, "secret.orders")
	tried["delete a topic"] = one(err, deleted["secret.orders"].Err)
	described, err := cl.ListTopics(ctx, "secret.orders")
	tried["describe a topic"] = one(err, described["secret.orders"].Err)
	offsets, err := cl.ListEndOffsets(ctx, "secret.orders")
	tried["list offsets"] = one(err, offsets.Error())
	value := "1"
	altered, err := cl.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, "secret.orders")
	if err == nil && len(altered) == 1 {
		err = altered[0].Err
	}
	tried["alter a topic"] = err
	committed, err := cl.CommitOffsets(ctx, "secret.group", kadm.OffsetsFromRecords(kgo.Record{Topic: "secret.orders", Offset: 7}))
	if err = one(err, committed.Error()); errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = kerr.TopicAuthorizationFailed // the client looked for the topic's id, and was not told of the topic
	}
	tried["commit"] = err
	_, tried["fetch offsets"] = cl.FetchOffsets(ctx, "secret.group")
	gone, err := cl.DeleteGroups(ctx, "secret.group")
	tried["delete a group"] = one(err, gone["secret.group"].Err)
	listed, err := cl.DescribeACLs(ctx, kadm.NewACLs().Allow().Deny().AllowHosts().DenyHosts().Topics().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny))
	for _, l := range listed {
		err = cmp.Or(err, l.Err)
	}
	tried["list ACLs"] = err
	rules, err := cl.CreateACLs(ctx, kadm.NewACLs().Allow("User:somebody").AllowHosts("*").Topics("secret.orders").Operations(kadm.OpAll).ResourcePatternType(kadm.ACLPatternLiteral))
	if err == nil && len(rules) == 1 {
		err = rules[0].Err
	}
	tried["create an ACL"] = err
	_, tried["list users"] = cl.DescribeUserSCRAMs(ctx)
	return tried
}

// produceAs produces one record.
func produceAs(t *testing.T, cl visitor, topic string) error {
	t.Helper()
	return cl.records.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("one")}).FirstErr()
}
