package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/token"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/user"
)

// issuer signs tokens, with an RSA key and an EC key.
type issuer struct {
	t   *testing.T
	rsa *rsa.PrivateKey
	ec  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	one, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t, one, other}
}

func (i *issuer) jwks() []byte {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "rsa", Key: i.rsa.Public()}, {KeyID: "ec", Key: i.ec.Public()}}})
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// token is valid for an hour, unless it is changed.
func (i *issuer) token(name string, change ...func(*jwt.Claims)) string {
	return i.sign(jose.ES256, "ec", i.ec, name, change...)
}

func (i *issuer) sign(by jose.SignatureAlgorithm, id string, key any, name string, change ...func(*jwt.Claims)) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: by, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		i.t.Fatal(err)
	}
	all := jwt.Claims{Issuer: "https://issuer.example", Audience: jwt.Audience{"weir"}, Subject: name, IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}
	for _, c := range change {
		c(&all)
	}
	text, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// trusting checks the issuer's tokens with keys at a URL or in a file.
func (i *issuer) trusting(jwks string) *token.Verifier {
	i.t.Helper()
	v, err := token.New(token.Config{JWKS: jwks, Issuer: "https://issuer.example", Audiences: []string{"weir"}, Leeway: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		i.t.Fatal(err)
	}
	return v
}

// inFile is trusting with the keys in a file, which works in fake time.
func (i *issuer) inFile() *token.Verifier {
	i.t.Helper()
	file := filepath.Join(i.t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, i.jwks(), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return i.trusting(file)
}

// withTokens starts a broker whose clients log in with tokens, too.
func withTokens(t *testing.T, tokens *token.Verifier, cfg kafka.Config, fake bool) *ruled {
	store, quiet := memory.New(), slog.New(slog.DiscardHandler)
	cfg.Users, cfg.ACLs, cfg.SuperUsers, cfg.Tokens = user.New(everystore.Direct(store), quiet), acl.New(everystore.Direct(store), quiet), []string{"User:admin"}, tokens
	return &ruled{&population{guard(t, store, cfg, fake), cfg.Users}, cfg.ACLs}
}

// bearer logs in with a token.
func (w *wire) bearer(text string) *kmsg.SASLAuthenticateResponse {
	w.t.Helper()
	wantCode(w.t, "handshake", w.handshake(1, "OAUTHBEARER").ErrorCode, nil)
	return w.authenticate("n,,\x01auth=Bearer " + text + "\x01\x01")
}

// franz-go is the client, and a server on this machine has the keys.
func TestTokenOpensTheKafkaDoor(t *testing.T) {
	i := newIssuer(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(i.jwks()) }))
	defer endpoint.Close()
	tokens := i.trusting(endpoint.URL)
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); _ = tokens.Run(ctx) }()
	defer func() { cancel(); <-running }()
	r := withTokens(t, tokens, kafka.Config{}, false)
	defer r.stop()
	r.createTopic("orders", 1, nil)
	produce := func(auth oauth.Auth) error {
		cl := r.client(kgo.SeedBrokers(r.door), kgo.SASL(auth.AsMechanism()), kgo.RecordRetries(0), kgo.RetryTimeout(time.Second))
		defer cl.Close()
		return cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr()
	}
	if err := produce(oauth.Auth{Token: i.token("admin")}); err != nil {
		t.Errorf("a super user: %v", err)
	}
	if err := produce(oauth.Auth{Token: i.token("alice")}); err == nil {
		t.Error("alice may produce without a rule")
	}
	r.create(acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Write})
	for _, auth := range []oauth.Auth{
		{Token: i.sign(jose.RS256, "rsa", i.rsa, "alice")},
		{Token: i.token("alice"), Zid: "alice"},
		{Token: i.token("alice"), Extensions: map[string]string{"logicalCluster": "lkc-1"}},
	} {
		if err := produce(auth); err != nil {
			t.Errorf("zid %q: %v", auth.Zid, err)
		}
	}
	if err := produce(oauth.Auth{Token: i.token("alice"), Zid: "admin"}); err == nil {
		t.Error("alice may be admin")
	}
	if end := listed(t, r.broker, "orders"); end != 4 {
		t.Errorf("the topic has %d records, want 4", end)
	}
}

// RFC 7628, 3.2.3: the client is told by a challenge, answers with one byte, and gets the error.
func TestBadTokensAreAnsweredAsKafkaDoes(t *testing.T) {
	i, stranger := newIssuer(t), newIssuer(t)
	tokens := i.inFile()
	synctest.Test(t, func(t *testing.T) {
		r := withTokens(t, tokens, kafka.Config{}, true)
		defer r.stop()
		const challenge = `{"status":"invalid_token"}`
		for name, bad := range map[string]string{
			"expired":          i.token("admin", func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Minute)) }),
			"another audience": i.token("admin", func(c *jwt.Claims) { c.Audience = jwt.Audience{"shop"} }),
			"another issuer":   i.token("admin", func(c *jwt.Claims) { c.Issuer = "https://evil.example" }),
			"another's key":    stranger.token("admin"),
			"HS256":            i.sign(jose.HS256, "rsa", i.rsa.PublicKey.N.Bytes(), "admin"),
			"unsigned":         "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
			"no token":         "hello",
		} {
			w := r.knock()
			began := time.Now()
			got := w.bearer(bad)
			wantCode(t, name, got.ErrorCode, nil)
			if string(got.SASLAuthBytes) != challenge || got.SessionLifetimeMillis != 0 {
				t.Errorf("%s: challenged with %q, for %d ms", name, got.SASLAuthBytes, got.SessionLifetimeMillis)
			}
			got = w.authenticate("\x01")
			wantCode(t, name, got.ErrorCode, kerr.SaslAuthenticationFailed)
			if said := text(got.ErrorMessage); said != challenge {
				t.Errorf("%s: the client is told %q", name, said)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("%s: answered after %v", name, took)
			}
			w.mustClose()

			w = r.knock() // a client that sends something else than the byte
			w.bearer(bad)
			wantCode(t, name+", another message", w.authenticate("n,,\x01auth=Bearer "+i.token("admin")+"\x01\x01").ErrorCode, kerr.SaslAuthenticationFailed)
			w.mustClose()

			w = r.knock() // a client that sends a request after the challenge
			w.bearer(bad)
			w.send(frame(metadataRequest(), 1))
			w.mustClose()
		}
		good := i.token("admin")
		for name, message := range map[string]string{
			"nothing":         "",
			"one byte":        "\x01",
			"binding":         "p=tls-unique,,\x01auth=Bearer " + good + "\x01\x01",
			"no pair":         "n,,\x01\x01",
			"no end":          "n,,\x01auth=Bearer " + good + "\x01",
			"another scheme":  "n,,\x01auth=Basic " + good + "\x01\x01",
			"two tokens":      "n,,\x01auth=Bearer " + good + "\x01auth=Bearer " + good + "\x01\x01",
			"a bad name":      "n,a=a=b,\x01auth=Bearer " + good + "\x01\x01",
			"a long message":  "n,,\x01auth=Bearer " + good + "\x01key=" + strings.Repeat("v", 40<<10) + "\x01\x01",
			"an empty token":  "n,,\x01auth=Bearer \x01\x01",
			"PLAIN's message": "\x00admin\x00" + good,
		} {
			w := r.knock()
			wantCode(t, "handshake", w.handshake(1, "OAUTHBEARER").ErrorCode, nil)
			wantCode(t, name, w.authenticate(message).ErrorCode, kerr.SaslAuthenticationFailed)
			w.mustClose()
		}
		if said := r.said.String(); strings.Contains(said, good) || !strings.Contains(said, "mechanism=OAUTHBEARER") {
			t.Errorf("the log has a token, or no line: %s", said)
		}
	})
}

func TestHugeTokenIsRefusedBeforeItIsRead(t *testing.T) {
	i := newIssuer(t)
	tokens := i.inFile()
	synctest.Test(t, func(t *testing.T) {
		r := withTokens(t, tokens, kafka.Config{LoginLasts: time.Hour}, true)
		defer r.stop()
		huge := kmsg.NewPtrSASLAuthenticateRequest()
		huge.Version, huge.SASLAuthBytes = 2, []byte("n,,\x01auth=Bearer "+i.token("admin")+strings.Repeat("A", 1<<20)+"\x01\x01")
		w := r.knock()
		wantCode(t, "handshake", w.handshake(1, "OAUTHBEARER").ErrorCode, nil)
		go w.nc.Write(frame(huge, 1))
		w.mustClose()
		if said := r.said.String(); !strings.Contains(said, "the limit before the login is 65536") {
			t.Errorf("the log says: %s", said)
		}
		w = r.knock() // somebody who has logged in
		wantCode(t, "login", w.bearer(i.token("admin")).ErrorCode, nil)
		time.Sleep(2 * time.Second)
		wantCode(t, "handshake", w.handshake(1, "OAUTHBEARER").ErrorCode, nil)
		wantCode(t, "a token of 1 MiB", tells[*kmsg.SASLAuthenticateResponse](w, huge).ErrorCode, kerr.SaslAuthenticationFailed)
		w.mustClose()
		if said := r.said.String(); !strings.Contains(said, "bytes; the limit is 36864") {
			t.Errorf("the log says: %s", said)
		}
	})
}

// KIP-368: a login lasts as long as its token, or as the server allows if that is shorter.
func TestLoginLastsAsLongAsItsToken(t *testing.T) {
	i := newIssuer(t)
	tokens := i.inFile()
	minutes := func(n int) func(*jwt.Claims) {
		return func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(time.Duration(n) * time.Minute)) }
	}
	for name, c := range map[string]struct{ limit, told, ends time.Duration }{
		"without a limit":  {0, 5 * time.Minute, 5*time.Minute + 30*time.Second},
		"a longer limit":   {time.Hour, 5 * time.Minute, 5*time.Minute + 30*time.Second},
		"a shorter limit":  {time.Minute, time.Minute, time.Minute},
		"a limit a little": {5*time.Minute + 10*time.Second, 5 * time.Minute, 5*time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := withTokens(t, tokens, kafka.Config{LoginLasts: c.limit}, true)
				defer r.stop()
				lazy, again := r.knock(), r.knock()
				for _, w := range []*wire{lazy, again} {
					got := w.bearer(i.token("admin", minutes(5)))
					wantCode(t, "login", got.ErrorCode, nil)
					if got.SessionLifetimeMillis != c.told.Milliseconds() {
						t.Errorf("the client is told %d ms, want %v", got.SessionLifetimeMillis, c.told)
					}
				}
				time.Sleep(c.ends - time.Second)
				tells[*kmsg.MetadataResponse](lazy, metadataRequest())
				wantCode(t, "again", again.bearer(i.token("admin", minutes(5))).ErrorCode, nil)
				time.Sleep(2 * time.Second)
				tells[*kmsg.MetadataResponse](again, metadataRequest())
				lazy.send(frame(metadataRequest(), 1))
				lazy.mustClose()
				if said := r.said.String(); !strings.Contains(said, "did not log in again before its login ended") {
					t.Errorf("the log says: %s", said)
				}
				wantCode(t, "as another", again.bearer(i.token("alice")).ErrorCode, kerr.SaslAuthenticationFailed)
				again.mustClose()
			})
		})
	}
}

// A fetch that waits ends with its client's token.
func TestWaitingFetchEndsWithItsToken(t *testing.T) {
	i := newIssuer(t)
	tokens := i.inFile()
	synctest.Test(t, func(t *testing.T) {
		r := withTokens(t, tokens, kafka.Config{}, true)
		defer r.stop()
		r.createTopic("t", 1, nil)
		w := r.knock()
		wantCode(t, "login", w.bearer(i.token("admin", func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(time.Minute)) })).ErrorCode, nil)
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxWaitMillis = 5 * 60_000
		w.send(frame(fetch, 1))
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		r.mustProduce("t", 0, sealed(t, batch.None, value("secret")))
		if got := w.mustClose(); got != "" {
			t.Errorf("it is answered with %q", got)
		}
	})
}

// While the keys cannot be fetched the connection is closed without an answer, so that clients try
// again.
func TestClientsTryAgainWhileTheKeysAreAway(t *testing.T) {
	i := newIssuer(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer endpoint.Close()
	r := withTokens(t, i.trusting(endpoint.URL), kafka.Config{}, false)
	defer r.stop()
	w := r.knock()
	wantCode(t, "handshake", w.handshake(1, "OAUTHBEARER").ErrorCode, nil)
	message := kmsg.NewPtrSASLAuthenticateRequest()
	message.Version, message.SASLAuthBytes = 2, []byte("n,,\x01auth=Bearer "+i.token("admin")+"\x01\x01")
	w.send(frame(message, 1))
	if got := w.mustClose(); got != "" {
		t.Errorf("the login is answered with %q", got)
	}
	if said := r.said.String(); !strings.Contains(said, "503 Service Unavailable") {
		t.Errorf("the log says: %s", said)
	}
}

func TestTokensAreOfferedOnlyIfThereIsAnIssuer(t *testing.T) {
	i := newIssuer(t)
	for _, c := range []struct {
		tokens *token.Verifier
		want   *kerr.Error
	}{{nil, kerr.UnsupportedSaslMechanism}, {i.inFile(), nil}} {
		r := withTokens(t, c.tokens, kafka.Config{}, false)
		got := r.knock().handshake(1, "OAUTHBEARER")
		wantCode(t, "handshake", got.ErrorCode, c.want)
		if offered := slices.Contains(got.SupportedMechanisms, "OAUTHBEARER"); offered != (c.want == nil) {
			t.Errorf("offered are %v", got.SupportedMechanisms)
		}
		r.stop()
	}
}

// With version 0 of SaslHandshake the challenge, and the byte after it, have no requests around
// them.
func TestOldHandshakeGetsTheChallengeBare(t *testing.T) {
	i := newIssuer(t)
	r := withTokens(t, i.inFile(), kafka.Config{}, false)
	defer r.stop()
	w := r.knock()
	wantCode(t, "handshake", w.handshake(0, "OAUTHBEARER").ErrorCode, nil)
	bare := func(message string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	}
	w.send(bare("n,,\x01auth=Bearer bad\x01\x01"))
	w.send(bare("\x01"))
	if got, want := w.mustClose(), string(bare(`{"status":"invalid_token"}`)); got != want {
		t.Errorf("answered with %q, want %q", got, want)
	}
	w = r.knock()
	wantCode(t, "handshake", w.handshake(0, "OAUTHBEARER").ErrorCode, nil)
	w.send(bare("n,,\x01auth=Bearer " + i.token("admin") + "\x01\x01"))
	empty := make([]byte, 4)
	if _, err := w.nc.Read(empty); err != nil || string(empty) != "\x00\x00\x00\x00" {
		t.Fatalf("answered with %v: %v", empty, err)
	}
	tells[*kmsg.MetadataResponse](w, metadataRequest())
}
