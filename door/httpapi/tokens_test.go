package httpapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/weir-log/weir/internal/token"
	"github.com/weir-log/weir/use/apikey"
)

// issuer signs tokens.
type issuer struct {
	key      *ecdsa.PrivateKey
	verifier *token.Verifier
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "1", Key: key.Public()}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, jwks, 0o600); err != nil {
		t.Fatal(err)
	}
	verifier, err := token.New(token.Config{JWKS: file, Issuer: "id.example.org", Audiences: []string{"weir"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key, verifier}
}

// token returns an Authorization header with a token for a minute, with other claims where some are
// given.
func (i *issuer) token(t *testing.T, name string, other map[string]any) string {
	t.Helper()
	return signed(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: i.key}}, name, other)
}

func signed(t *testing.T, by jose.SigningKey, name string, other map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": "id.example.org", "aud": "weir", "sub": name, "exp": time.Now().Add(time.Minute).Unix()}
	for claim, value := range other {
		claims[claim] = value
	}
	signer, err := jose.NewSigner(by, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + text
}

func TestTokensMakeUsers(t *testing.T) {
	ids := newIssuer(t)
	door := lock(t, Config{Tokens: ids.verifier, SuperUsers: []string{"User:admin"}})
	_, key := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}, Topics: []string{"users"}})
	door.rule(t, "alice", "read topic orders.eu")
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(ids.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	alice := ids.token(t, "alice", nil)
	parts := strings.Split(alice, ".")
	other := strings.Split(ids.token(t, "admin", nil), ".")
	const none = "eyJhbGciOiJub25lIn0" // {"alg":"none"}
	for name, c := range map[string]struct {
		auth, path string
		want       int
	}{
		"a token":                          {alice, ordersPage, 200},
		"for what it may not":              {alice, usersPage, 403},
		"of a super user":                  {ids.token(t, "admin", nil), usersPage, 200},
		"a key":                            {"Bearer " + key, usersPage, 200},
		"of another key":                   {signed(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: another}}, "admin", nil), usersPage, 401},
		"by the public key as a secret":    {signed(t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, "admin", nil), usersPage, 401},
		"without a signature":              {"Bearer " + none + "." + parts[1] + ".", ordersPage, 401},
		"with the claims of another":       {parts[0] + "." + other[1] + "." + parts[2], usersPage, 401},
		"that has expired":                 {ids.token(t, "alice", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), ordersPage, 401},
		"for another audience":             {ids.token(t, "alice", map[string]any{"aud": "mail"}), ordersPage, 401},
		"of another issuer":                {ids.token(t, "alice", map[string]any{"iss": "evil.example"}), ordersPage, 401},
		"with a name of 64 KiB":            {ids.token(t, strings.Repeat("a", 64<<10), nil), ordersPage, 401},
		"with a name of 129 bytes":         {ids.token(t, strings.Repeat("a", 129), nil), ordersPage, 401},
		"of everybody":                     {ids.token(t, "*", nil), ordersPage, 401},
		"of 1 MiB":                         {"Bearer " + strings.Repeat("e", 1<<20), ordersPage, 401},
		"a key that does not exist":        {"Bearer weir_aaaaaaaa_" + strings.Repeat("a", 52), usersPage, 401},
		"nothing":                          {"Bearer", ordersPage, 401},
		"a token as a password":            {basic("alice", strings.TrimPrefix(alice, "Bearer ")), ordersPage, 401},
		"a token without the word Bearer ": {strings.TrimPrefix(alice, "Bearer "), ordersPage, 401},
	} {
		if w := door.as(c.auth, "GET", c.path, ""); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
	if w := door.ask(hereToo, "GET", ordersPage, ""); w.Code != 401 {
		t.Errorf("without a token, on the same machine: %d", w.Code)
	}
	if strings.Contains(door.said.String(), strings.Split(alice, ".")[2]) {
		t.Error("the log has a token")
	}
}

// What comes after a token has expired reaches none of its streams. A member of a group stays if
// its client has shown another token of the same user.
func TestTokenThatExpiresEndsItsStreams(t *testing.T) {
	ids := newIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{Tokens: ids.verifier})
		door.rule(t, "alice", "all topic *", "all group *")
		_, writer := door.key(t, apikey.Spec{Access: []apikey.Access{apikey.Write}})
		stream := func(auth string) (w *httptest.ResponseRecorder, ended chan struct{}) {
			ctx, leave := context.WithCancel(t.Context())
			t.Cleanup(leave)
			r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/topics/orders.eu/events", nil)
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Authorization", auth)
			w, ended = httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(ended)
				door.ServeHTTP(w, r)
			}()
			return w, ended
		}
		brief, long := ids.token(t, "alice", nil), ids.token(t, "alice", map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
		w, ended := stream(brief)
		other, goesOn := stream(long)
		var members []string
		for range 2 {
			joined := door.as(brief, "POST", "/v1/groups/g/members", `{"topics":["orders.eu"], "session_ms": 600000}`)
			if joined.Code != 201 {
				t.Fatalf("%d %s", joined.Code, joined.Body)
			}
			members = append(members, joined.Header().Get("Location"))
		}
		if w := door.as(long, "POST", members[0]+"/commit", `{}`); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute + 10*time.Second)
		if w := door.as("Bearer "+writer, "POST", ordersPublish, "event"); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the stream of a token that has expired goes on")
		}
		select {
		case <-goesOn:
			t.Errorf("the stream of another token of the same user ended: %s", other.Body)
		default:
		}
		if strings.Contains(w.Body.String(), "event") && strings.Contains(w.Body.String(), `"value":"event"`) {
			t.Errorf("the stream had %s", w.Body)
		}
		if w := door.as(long, "POST", members[0]+"/commit", `{}`); w.Code != 204 {
			t.Errorf("the member whose client has another token: %d %s", w.Code, w.Body)
		}
		if w := door.as(long, "POST", members[1]+"/commit", `{}`); w.Code != 404 {
			t.Errorf("the member whose client's token has expired: %d %s, want 404", w.Code, w.Body)
		}
	})
}
