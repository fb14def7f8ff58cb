package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

func TestClientsLogInWithTokens(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "1", Key: key.Public()}}})
	}))
	defer endpoint.Close()
	s := serve(t, "--store", "memory:", "--kafka", "sasl_plaintext://127.0.0.1:0", "--super-users", "User:admin", "--oauth-jwks", endpoint.URL,
		"--oauth-issuer", "https://id.example.org", "--oauth-audience", "shop", "--oauth-audience", "weir", "--oauth-principal-claim", "azp", "--oauth-leeway", "1m")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		azp, aud string
		left     time.Duration
		ok       bool
	}{
		"a super user":         {"admin", "weir", time.Hour, true},
		"late by less than 1m": {"admin", "shop", -40 * time.Second, true},
		"late by more":         {"admin", "shop", -2 * time.Minute, false},
		"for another audience": {"admin", "mail", time.Hour, false},
		"somebody else":        {"alice", "weir", time.Hour, false},
	} {
		token, err := jwt.Signed(signer).Claims(map[string]any{"iss": "https://id.example.org", "aud": c.aud, "azp": c.azp, "sub": "0b6e", "exp": time.Now().Add(c.left).Unix()}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.SASL(oauth.Auth{Token: token}.AsMechanism()), kgo.AllowAutoTopicCreation(), kgo.RecordRetries(0), kgo.UnknownTopicRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		cl.Close()
	}
	s.metric(t, "weir_oauth_keys_age_seconds ")
}

// Nobody waits for an endpoint that takes connections and says nothing.
func TestStartDoesNotWaitForTheKeysOfTokens(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	args := []string{"--store", "memory:", "--kafka", "sasl_plaintext://127.0.0.1:0", "--oauth-issuer", "i", "--oauth-audience", "a", "--oauth-jwks"}
	if code := serve(t, append(args, "http://"+silent.Addr().String())...).stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	s := serve(t, append(args, "http://"+gone.Addr().String())...)
	for !strings.Contains(s.out.String(), "nobody can log in with a token") {
		select {
		case <-s.out.changed:
		case <-t.Context().Done():
			t.Fatal(s.out.String())
		case <-time.After(20 * time.Second):
			t.Fatalf("weir says %s", s.out.String())
		}
	}
}
