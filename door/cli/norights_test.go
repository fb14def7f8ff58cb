package cli

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
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
)

// visitor is a client for all requests.
type visitor struct {
	*kadm.Client
	records *kgo.Client
}

// Somebody without rights is refused, by every door, whoever it is: it changes nothing, and learns nothing.
func TestWithoutRightsEveryDoorIsShut(t *testing.T) {
	s := newSecured(t)
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
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: signing}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{"iss": "https://id.example.org", "aud": "weir", "sub": "somebody", "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	cert, key := s.signer.Issue(t, "somebody", time.Hour)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ops := s.key(t, "ops", "--access", "admin", "--all-topics", "--all-groups")
	others := s.key(t, "somebody", "--access", "admin", "--topic", "others.")
	onlyQueues := s.key(t, "somebody", "--access", "admin", "--queue", "others.")
	revoked := s.key(t, "gone", "--access", "admin", "--all-topics", "--all-groups")
	weir(t, "", "key", "revoke", strings.Split(revoked, "_")[1], "--store", s.url, "--yes").want(t, exitOK)
	weir(t, "somebodys password", "user", "add", "somebody", "--store", s.url).want(t, exitOK)

	server := serve(t, "--store", s.url, "--kafka", "ssl://127.0.0.1:0", "--kafka", "sasl_ssl://127.0.0.1:0", "--tls-cert", s.certFile, "--tls-key", s.keyFile, "--tls-client-ca", s.caFile,
		"--super-users", "User:admin", "--oauth-jwks", jwksFile, "--oauth-issuer", "https://id.example.org", "--oauth-audience", "weir")
	byCertificate := regexp.MustCompile(`Kafka  (\S+)  ssl:`).FindStringSubmatch(server.out.String())[1]
	trust := &tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost"}
	certified := trust.Clone()
	certified.Certificates = []tls.Certificate{pair}

	byKey := func(name, secret string) kgo.Opt { return kgo.SASL(plain.Auth{User: name, Pass: secret}.AsMechanism()) }
	client := func(opts ...kgo.Opt) visitor {
		t.Helper()
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(server.kafka), kgo.DialTLSConfig(trust), kgo.AllowAutoTopicCreation(), kgo.RecordRetries(0), kgo.UnknownTopicRetries(0)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return visitor{kadm.NewClient(cl), cl}
	}
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
		"a certificate":          {"", certified, 401},
		"a revoked key":          {"Bearer " + revoked, trust, 401},
		"a token":                {"Bearer " + token, trust, 401},
		"a user":                 {"Basic c29tZWJvZHk6c29tZWJvZHlzIHBhc3N3b3Jk", trust, 401},
		"a key for other topics": {"Bearer " + others, trust, 403},
		"a key for queues":       {"Bearer " + onlyQueues, trust, 403},
	} {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls}}
		for _, try := range []struct{ method, path, body string }{
			{"GET", "/v1/topics/secret.orders", ""}, {"GET", "/v1/topics/secret.orders/partitions/0/events", ""}, {"GET", "/v1/topics/secret.orders/stream", ""},
			{"POST", "/v1/topics/secret.orders/events", `{"value": "x"}`}, {"POST", "/v1/topics", `{"name": "secret.new"}`}, {"DELETE", "/v1/topics/secret.orders", ""},
			{"GET", "/v1/groups/secret.group", ""}, {"DELETE", "/v1/groups/secret.group", ""}, {"POST", "/v1/groups/secret.group/members", `{"topics": ["secret.orders"]}`},
			{"POST", "/v1/queues", `{"name": "secret.queue"}`}, {"POST", "/v1/streams", `{"name": "secret.streams"}`}, {"POST", "/v1/queues/secret.queue/messages", `{}`},
		} {
			req, err := http.NewRequestWithContext(t.Context(), try.method, "https://"+server.http+try.path, strings.NewReader(try.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if c.auth != "" {
				req.Header.Set("Authorization", c.auth)
			}
			answer, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != c.want {
				t.Errorf("over HTTP, %s: %s %s: %d, want %d", name, try.method, try.path, answer.StatusCode, c.want)
			}
		}
		web.CloseIdleConnections()
	}

	ends, err := admin.ListEndOffsets(t.Context())
	topics, errTopics := admin.ListTopics(t.Context())
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
