package token

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/weir-log/weir/eventlog"
)

// Keys are made once: an RSA key takes a while.
var (
	rsaKey   = must(rsa.GenerateKey(rand.Reader, rsaMin))
	shortKey = must(rsa.GenerateKey(rand.Reader, 1024))
	p256     = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	other    = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	p384     = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	p521     = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	_, ed, _ = ed25519.GenerateKey(rand.Reader)
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// published are the keys of the issuer in most tests.
func published() []jose.JSONWebKey {
	return []jose.JSONWebKey{
		{KeyID: "rsa", Key: rsaKey.Public()}, {KeyID: "p256", Key: p256.Public(), Use: "sig", Algorithm: "ES256"}, {KeyID: "p384", Key: p384.Public()},
		{KeyID: "p521", Key: p521.Public()}, {KeyID: "ed", Key: ed.Public()},
	}
}

// issuer is an issuer's endpoint, and how many requests it got. As a transport it needs no network,
// so that it works in fake time.
type issuer struct {
	mu     sync.Mutex // guards all below
	keys   []jose.JSONWebKey
	answer http.HandlerFunc // in place of the keys
	asked  int
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	i.asked++
	answer := i.answer
	text, _ := json.Marshal(jose.JSONWebKeySet{Keys: i.keys})
	i.mu.Unlock()
	w := httptest.NewRecorder()
	if answer == nil {
		w.Write(text)
		return w.Result(), nil
	}
	answer(w, r)
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

func (i *issuer) set(answer http.HandlerFunc, keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer, i.keys = answer, keys
}

func (i *issuer) requests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

const leeway = 30 * time.Second

func verifying(t *testing.T, i *issuer, logged io.Writer) *Verifier {
	t.Helper()
	v, err := New(Config{JWKS: "https://issuer.example/jwks", Issuer: "https://issuer.example", Audiences: []string{"weir", "log"}, Leeway: leeway, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	v.keys.from.(*endpoint).transport = i
	return v
}

// claims are those of a valid token, changed.
func claims(change ...map[string]any) map[string]any {
	all := map[string]any{"iss": "https://issuer.example", "aud": "weir", "sub": "alice", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for _, c := range change {
		for name, v := range c {
			if all[name] = v; v == nil {
				delete(all, name)
			}
		}
	}
	return all
}

// sign makes a token. Without an id it does not name its key.
func sign(by jose.SignatureAlgorithm, id string, key any, all map[string]any) string {
	options := &jose.SignerOptions{}
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: by, Key: key}, options))
	return must(jwt.Signed(signer).Claims(all).Serialize())
}

func TestTokensOfTheIssuerAreValid(t *testing.T) {
	v := verifying(t, &issuer{keys: published()}, io.Discard)
	for by, signer := range map[jose.SignatureAlgorithm]struct {
		id  string
		key any
	}{
		jose.RS256: {"rsa", rsaKey}, jose.RS384: {"rsa", rsaKey}, jose.RS512: {"rsa", rsaKey}, jose.PS256: {"rsa", rsaKey}, jose.PS384: {"rsa", rsaKey}, jose.PS512: {"rsa", rsaKey},
		jose.ES256: {"p256", p256}, jose.ES384: {"p384", p384}, jose.ES512: {"p521", p521}, jose.EdDSA: {"ed", ed},
	} {
		got, err := v.Check(t.Context(), sign(by, signer.id, signer.key, claims()))
		if err != nil || got.Name != "alice" || got.Ends.Sub(got.Expires) != leeway {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	for name, c := range map[string]map[string]any{
		"several audiences":     {"aud": []string{"shop", "log"}},
		"expired in the leeway": {"exp": time.Now().Add(-20 * time.Second).Unix()},
		"early in the leeway":   {"nbf": time.Now().Add(20 * time.Second).Unix(), "iat": time.Now().Add(20 * time.Second).Unix()},
		"without iat":           {"iat": nil},
	} {
		if _, err := v.Check(t.Context(), sign(jose.ES256, "p256", p256, claims(c))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := v.Check(t.Context(), sign(jose.ES256, "", p256, claims())); err != nil {
		t.Errorf("without a key's id: %v", err)
	}
	v.cfg.Claim = "azp"
	if got, err := v.Check(t.Context(), sign(jose.ES256, "p256", p256, claims(map[string]any{"azp": "billing"}))); err != nil || got.Name != "billing" {
		t.Errorf("another claim: %+v, %v", got, err)
	}
}

func TestOtherTokensAreRefused(t *testing.T) {
	keys := append(published(), jose.JSONWebKey{KeyID: "p256 too", Key: other.Public()}, jose.JSONWebKey{KeyID: "RS256 only", Key: rsaKey.Public(), Algorithm: "RS256"})
	v := verifying(t, &issuer{keys: keys}, io.Discard)
	if err := v.keys.from.(*endpoint).transport.(*issuer).check(t, v); err != nil {
		t.Fatal(err)
	}
	valid := sign(jose.ES256, "p256", p256, claims())
	parts := strings.Split(valid, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	payload := b64(must(json.Marshal(claims())))
	public := must(x509.MarshalPKIXPublicKey(rsaKey.Public()))
	hmac := func(secret []byte) string { return sign(jose.HS256, "rsa", secret, claims()) }
	ago, ahead := time.Now().Add(-time.Minute).Unix(), time.Now().Add(time.Minute).Unix()
	changed := func(change map[string]any) string { return sign(jose.ES256, "p256", p256, claims(change)) }
	sealed := must(jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.RSA_OAEP, Key: rsaKey.Public()}, nil))
	for name, c := range map[string]struct{ text, said string }{
		"expired":                     {changed(map[string]any{"exp": ago}), "the token expired at "},
		"without an end":              {changed(map[string]any{"exp": nil}), "no time of expiry"},
		"not valid yet":               {changed(map[string]any{"nbf": ahead}), "not valid yet"},
		"issued in the future":        {changed(map[string]any{"iat": ahead}), "not valid yet"},
		"of another issuer":           {changed(map[string]any{"iss": "https://issuer.example/"}), `iss) is "https://issuer.example/"`},
		"without an issuer":           {changed(map[string]any{"iss": nil}), `iss) is ""`},
		"for somebody else":           {changed(map[string]any{"aud": []string{"shop", "weird"}}), `aud) is "shop weird"`},
		"without an audience":         {changed(map[string]any{"aud": nil}), `aud) is ""`},
		"without a name":              {changed(map[string]any{"sub": nil}), `no claim "sub"`},
		"with an empty name":          {changed(map[string]any{"sub": ""}), `no claim "sub"`},
		"with a number for a name":    {changed(map[string]any{"sub": 7}), "cannot unmarshal number"},
		"with a long name":            {changed(map[string]any{"sub": strings.Repeat("n", 129)}), "129 bytes; the limit is 128"},
		"for everybody":               {changed(map[string]any{"sub": "*"}), "is no name"},
		"with a line in the name":     {changed(map[string]any{"sub": "a\nb"}), "is no name"},
		"unsigned":                    {b64([]byte(`{"alg":"none","kid":"rsa"}`)) + "." + payload + ".", "unexpected signature algorithm"},
		"unsigned, with a signature":  {b64([]byte(`{"alg":"none","kid":"rsa"}`)) + "." + payload + "." + parts[2], "unexpected signature algorithm"},
		"HS256 with the public key":   {hmac(public), "unexpected signature algorithm"},
		"HS256 with its PEM":          {hmac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})), "unexpected signature algorithm"},
		"encrypted":                   {must(must(sealed.Encrypt([]byte(valid))).CompactSerialize()), "not a JWT"},
		"changed after it was signed": {parts[0] + "." + payload[:len(payload)-4] + "MX0." + parts[2], "cannot be verified with the key"},
		"without its signature":       {parts[0] + "." + parts[1] + ".", "cannot be verified with the key"},
		"signed by another":           {sign(jose.ES256, "p256", other, claims()), "cannot be verified with the key"},
		"of a key for another alg":    {sign(jose.ES256, "rsa", p256, claims()), `"rsa" does not sign with ES256`},
		"of a key for one alg":        {sign(jose.PS256, "RS256 only", rsaKey, claims()), `"RS256 only" does not sign with PS256`},
		"of one of two keys":          {sign(jose.ES256, "", p256, claims()), "does not name its key (kid), and the issuer has 2"},
		"with a long key id":          {sign(jose.ES256, strings.Repeat("k", 257), p256, claims()), "257 bytes; the limit is 256"},
		"with its own key":            {embedded(claims()), `cannot be verified with the key ""`},
		"with a critical header":      {critical(claims()), "cannot be verified with the key"},
		"huge":                        {valid + strings.Repeat("A", 1<<20), "the limit is 32768"},
		"empty":                       {"", "not a JWT"},
		"text":                        {"hello", "not a JWT"},
		"deep":                        {b64([]byte(strings.Repeat("[", 20<<10))) + ".e30.e30", "not a JWT"},
	} {
		got, err := v.Check(t.Context(), c.text)
		if err == nil || !strings.Contains(err.Error(), c.said) || got != (Token{}) {
			t.Errorf("%s: %+v, %v; want a word of %q", name, got, err, c.said)
		}
	}
}

// check fetches the keys, and makes the fetch look old, so that an unknown key is looked for.
func (i *issuer) check(t *testing.T, v *Verifier) error {
	v.keys.renew(t.Context(), 0)
	fetched := *v.keys.last.Load()
	fetched.tried = time.Time{}
	v.keys.last.Store(&fetched)
	return fetched.err
}

// embedded is a token that carries the key that signed it (RFC 7515, 4.1.3): nobody may believe
// that.
func embedded(all map[string]any) string {
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES384, Key: must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))}, &jose.SignerOptions{EmbedJWK: true}))
	return must(jwt.Signed(signer).Claims(all).Serialize())
}

// critical is a token with a header that it requires to be understood (RFC 7515, 4.1.11).
func critical(all map[string]any) string {
	options := (&jose.SignerOptions{}).WithHeader("kid", "p256").WithCritical("cty").WithHeader("cty", "x")
	return must(jwt.Signed(must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p256}, options))).Claims(all).Serialize())
}

func TestRotatedKeyIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := jose.JSONWebKey{KeyID: "1", Key: p256.Public()}, jose.JSONWebKey{KeyID: "2", Key: other.Public()}
		i := &issuer{keys: []jose.JSONWebKey{first}}
		v := verifying(t, i, io.Discard)
		ends := v.background(t)
		defer ends()
		check := func(id string, key any, want error) {
			t.Helper()
			_, err := v.Check(t.Context(), sign(jose.ES256, id, key, claims()))
			if !errors.Is(err, want) {
				t.Errorf("key %s: %v, want %v", id, err, want)
			}
		}
		check("1", p256, nil)
		i.set(nil, first, second)
		time.Sleep(time.Second)
		check("2", other, eventlog.ErrUnavailable) // the keys were fetched less than refetchEvery ago
		time.Sleep(refetchEvery)
		check("2", other, nil)
		i.set(nil, second)
		time.Sleep(refreshURL + time.Second) // nobody misses a key
		check("1", p256, errUnknownKey)
		check("2", other, nil)
	})
}

// background runs v until the function that it returns is called.
func (v *Verifier) background(t *testing.T) (end func()) {
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(stop); _ = v.Run(ctx) }()
	synctest.Wait()
	return func() { cancel(); <-stop }
}

func TestUnknownKeysCostTheIssuerLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: published()}
		v := verifying(t, i, io.Discard)
		defer v.background(t)()
		before := i.requests()
		const seconds = 60
		for range seconds {
			var together sync.WaitGroup
			for n := range 20 {
				together.Go(func() {
					if _, err := v.Check(t.Context(), sign(jose.ES256, fmt.Sprint("unknown", n), p256, claims())); err == nil {
						t.Error("a token of an unknown key is valid")
					}
				})
			}
			together.Wait()
			time.Sleep(time.Second)
		}
		if n := i.requests() - before; n < 2 || n > seconds/10+1 {
			t.Errorf("in %d s there were %d requests, want 2 to %d", seconds, n, seconds/10+1)
		}
	})
}

// A token whose key is known needs no endpoint; and no start-up waits for it.
func TestEndpointMayBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		i := &issuer{}
		silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		i.set(silent)
		v := verifying(t, i, &logged)
		began := time.Now()
		defer v.background(t)()
		valid := sign(jose.ES256, "p256", p256, claims())
		if _, err := v.Check(t.Context(), valid); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("while no key was ever fetched: %v", err)
		}
		if took := time.Since(began); took != fetchMax {
			t.Errorf("the check took %v, want %v", took, fetchMax)
		}
		if at := v.Fetched(); !at.IsZero() {
			t.Errorf("keys that were never fetched are said to be of %v", at)
		}
		if said := logged.String(); strings.Count(said, "nobody can log in with a token") != 1 {
			t.Errorf("the log says: %s", said)
		}
		i.set(nil, published()...)
		time.Sleep(2 * refetchEvery)
		if _, err := v.Check(t.Context(), valid); err != nil {
			t.Error(err)
		}
		i.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		time.Sleep(24 * time.Hour)
		began = time.Now()
		if _, err := v.Check(t.Context(), sign(jose.ES256, "p256", p256, claims())); err != nil || time.Since(began) != 0 {
			t.Errorf("a day later: %v, after %v", err, time.Since(began))
		}
		if age := time.Since(v.Fetched()); age < 24*time.Hour-refreshURL || age > 24*time.Hour+2*refetchEvery {
			t.Errorf("a day later the keys are said to be %v old", age)
		}
		if _, err := v.Check(t.Context(), sign(jose.ES256, "new", p256, claims())); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("an unknown key: %v", err)
		}
		if said := logged.String(); strings.Count(said, "\n") != 3 || !strings.Contains(said, "the last known keys are used") || !strings.Contains(said, "502 Bad Gateway") {
			t.Errorf("the log says: %s", said)
		}
		if n := i.requests(); n > 24*3600/10+10 {
			t.Errorf("%d requests in a day without the endpoint", n)
		}
	})
}

func TestFetchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jwks := func(keys ...jose.JSONWebKey) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
			}
		}
		for name, c := range map[string]struct {
			answer http.HandlerFunc
			said   string
		}{
			"huge": {func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, jwksMax+1)) }, "more than 1048576 bytes"},
			"a redirect": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://evil.example/jwks", http.StatusFound)
			}, `302 Found, Location "http://evil.example/jwks"`},
			"not JSON":     {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }, "not a JWKS"},
			"no keys":      {jwks(), "none of its 0 keys"},
			"a secret":     {jwks(jose.JSONWebKey{KeyID: "s", Key: []byte("secret")}), `"s" is not a public key`},
			"to encrypt":   {jwks(jose.JSONWebKey{KeyID: "e", Key: p256.Public(), Use: "enc"}), `its use is "enc"`},
			"a short key":  {jwks(jose.JSONWebKey{KeyID: "short", Key: shortKey.Public()}), `"short" has 1024 bits; 2048 are needed`},
			"HS256 by RSA": {jwks(jose.JSONWebKey{KeyID: "r", Key: rsaKey.Public(), Algorithm: "HS256"}), `does not fit its algorithm, "HS256"`},
		} {
			i := &issuer{answer: c.answer}
			v := verifying(t, i, io.Discard)
			if _, err := v.Check(t.Context(), sign(jose.ES256, "p256", p256, claims())); !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), c.said) {
				t.Errorf("%s: %v, want a word of %q", name, err, c.said)
			}
		}
		i := &issuer{}
		i.set(jwks(append(published(), jose.JSONWebKey{KeyID: "s", Key: []byte("secret")}, jose.JSONWebKey{KeyID: "short", Key: shortKey.Public()})...))
		v := verifying(t, i, io.Discard)
		if _, err := v.Check(t.Context(), sign(jose.ES256, "p256", p256, claims())); err != nil {
			t.Errorf("beside keys that cannot be used: %v", err)
		}
		if _, err := v.Check(t.Context(), sign(jose.RS256, "short", shortKey, claims())); err == nil {
			t.Error("a key of 1024 bits is used")
		}
	})
}

func TestKeysInAFileAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "jwks.json")
		cfg := Config{JWKS: "file://" + name, Issuer: "https://issuer.example", Audiences: []string{"weir"}, Logger: slog.New(slog.DiscardHandler)}
		write := func(text []byte) {
			t.Helper()
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		keys := func(all ...jose.JSONWebKey) []byte { return must(json.Marshal(jose.JSONWebKeySet{Keys: all})) }
		if _, err := New(cfg); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the file: %v", err)
		}
		for _, bad := range [][]byte{[]byte("hello"), keys(), make([]byte, jwksMax+1)} {
			write(bad)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "jwks.json") {
				t.Errorf("a file of %d bytes without keys: %v", len(bad), err)
			}
		}
		write(keys(jose.JSONWebKey{KeyID: "1", Key: p256.Public()}))
		v := must(New(cfg))
		defer v.background(t)()
		check := func(when, id string, key any, ok bool) {
			t.Helper()
			if _, err := v.Check(t.Context(), sign(jose.ES256, id, key, claims())); (err == nil) != ok {
				t.Errorf("%s: key %s: %v", when, id, err)
			}
		}
		check("at first", "1", p256, true)
		write([]byte(`{"keys":`))
		time.Sleep(2 * refreshFile)
		check("with half a file", "1", p256, true)
		write(keys(jose.JSONWebKey{KeyID: "2", Key: other.Public()}))
		time.Sleep(2 * refreshFile)
		check("with another key", "1", p256, false)
		check("with another key", "2", other, true)
	})
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := Config{JWKS: "https://issuer.example/jwks", Issuer: "i", Audiences: []string{"a"}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for said, change := range map[string]func(*Config){
		"the issuer of tokens":        func(c *Config) { c.Issuer = "" },
		"the audience of tokens":      func(c *Config) { c.Audiences = nil },
		"the leeway is 11m0s":         func(c *Config) { c.Leeway = 11 * time.Minute },
		"the leeway is -1s":           func(c *Config) { c.Leeway = -time.Second },
		`has the scheme "ftp"`:        func(c *Config) { c.JWKS = "ftp://issuer.example" },
		"must have a host":            func(c *Config) { c.JWKS = "https:///jwks" },
		"no user or password":         func(c *Config) { c.JWKS = "https://a:b@issuer.example/jwks" },
		"the JWKS is not at a URL":    func(c *Config) { c.JWKS = "https://issuer.example:x/" },
		"no such file or directory":   func(c *Config) { c.JWKS = "missing.json" },
		"is not a file with a JWKS: ": func(c *Config) { c.JWKS = t.TempDir() },
	} {
		bad := good
		change(&bad)
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%v, want a word of %q", err, said)
		}
	}
}

// FuzzToken takes anything as a token: only what the issuer signed is valid, and nothing panics.
func FuzzToken(f *testing.F) {
	keys := &keys{fetches: make(chan struct{}, 1), logger: slog.New(slog.DiscardHandler), from: file("missing")}
	signers := must(parse(must(json.Marshal(jose.JSONWebKeySet{Keys: published()}))))
	keys.last.Store(&known{signers: signers, tried: time.Now().Add(time.Hour)})
	v := &Verifier{Config{Issuer: "https://issuer.example", Audiences: []string{"weir"}, Claim: "sub"}, keys}
	valid := sign(jose.ES256, "p256", p256, claims())
	stem, _, _ := strings.Cut(valid, ".")
	f.Add(valid)
	f.Add(stem + ".e30.e30")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := v.Check(t.Context(), text); (err == nil) != (got.Name != "") || err == nil && got.Name != "alice" {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	})
}
