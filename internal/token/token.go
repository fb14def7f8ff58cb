// Package token checks OAuth access tokens: JSON Web Tokens (RFC 7519) that an issuer has signed.
// The issuer's public keys are a JWKS (RFC 7517), at a URL or in a file.
//
// token.go judges a token, keys.go finds the key that signed it, source.go fetches the keys.
package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Bounds of a token, in bytes. Whatever is longer is refused before it is parsed, or before a key
// is looked up.
const (
	TextMax = 32 << 10 // of the whole token
	keyMax  = 256      // of the id of its key
	nameMax = 128      // of the name in it, as of a user's name
)

// LeewayMax bounds Config.Leeway.
const LeewayMax = 10 * time.Minute

// algorithms are those with which tokens may be signed (RFC 7518, RFC 8037). All are asymmetric.
// With an HMAC whoever checks a token could also make one; and a server that accepts one beside
// these can be tricked into taking a public key for the HMAC's secret (RFC 8725, 2.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config says which tokens are valid.
type Config struct {
	JWKS      string        // where the issuer's keys are: an https or http URL, or a file
	Issuer    string        // the token's iss must be this
	Audiences []string      // the token's aud must have one of these
	Claim     string        // the claim with the client's name; default sub
	Leeway    time.Duration // how far this machine's clock and the issuer's may differ; at most LeewayMax

	Logger *slog.Logger // default: slog.Default()
}

// Verifier checks tokens.
type Verifier struct {
	cfg  Config
	keys *keys
}

// Token is a valid token.
type Token struct {
	Name    string    // of the client
	Expires time.Time // as the token says it
	Ends    time.Time // until then the token is accepted: Config.Leeway later
}

// New makes a verifier. It reads the keys if they are in a file, and refuses a file without one
// that can be used. Those at a URL are fetched by Run, or by the first check.
func New(cfg Config) (*Verifier, error) {
	switch {
	case cfg.Issuer == "":
		return nil, errors.New("the issuer of tokens is not given")
	case len(cfg.Audiences) == 0:
		return nil, errors.New("the audience of tokens is not given")
	case cfg.Leeway < 0 || cfg.Leeway > LeewayMax:
		return nil, fmt.Errorf("the leeway is %v; 0 to %v are allowed", cfg.Leeway, LeewayMax)
	}
	if cfg.Claim == "" {
		cfg.Claim = "sub"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	keys, err := newKeys(cfg.JWKS, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &Verifier{cfg, keys}, nil
}

// Run keeps the keys up to date until ctx ends, and returns nil.
func (v *Verifier) Run(ctx context.Context) error {
	v.keys.run(ctx)
	return nil
}

// Fetched returns when the keys were fetched; zero: never. They are fetched again within 10
// minutes.
func (v *Verifier) Fetched() time.Time { return v.keys.last.Load().at }

// Check returns what a valid token says; otherwise an error that is for the log, not for the
// client. eventlog.ErrUnavailable: not known, because the keys cannot be fetched.
//
// A token that a known key has signed costs no request. For an unknown key the keys are fetched
// again, but not more often than every refetchEvery.
func (v *Verifier) Check(ctx context.Context, text string) (Token, error) {
	if len(text) > TextMax {
		return Token{}, fmt.Errorf("the token has %d bytes; the limit is %d", len(text), TextMax)
	}
	signed, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return Token{}, fmt.Errorf("the token is not a JWT that is signed with one of %v: %w", algorithms, err)
	}
	header := signed.Headers[0] // the compact form has one
	if len(header.KeyID) > keyMax {
		return Token{}, fmt.Errorf("the id of the token's key has %d bytes; the limit is %d", len(header.KeyID), keyMax)
	}
	candidates, err := v.keys.find(ctx, header.KeyID, jose.SignatureAlgorithm(header.Algorithm))
	if err != nil {
		return Token{}, err
	}
	var standard jwt.Claims
	var all map[string]any
	for _, key := range candidates {
		if err = signed.Claims(key, &standard, &all); err == nil {
			return v.judge(standard, all)
		}
	}
	return Token{}, fmt.Errorf("the token cannot be verified with the key %q: %w", header.KeyID, err)
}

// judge checks the claims of a token whose signature is valid.
func (v *Verifier) judge(standard jwt.Claims, all map[string]any) (Token, error) {
	err := standard.ValidateWithLeeway(jwt.Expected{Issuer: v.cfg.Issuer, AnyAudience: v.cfg.Audiences, Time: time.Now()}, v.cfg.Leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return Token{}, fmt.Errorf("the token's issuer (iss) is %q; expected is %q", short(standard.Issuer), v.cfg.Issuer)
	case errors.Is(err, jwt.ErrInvalidAudience):
		return Token{}, fmt.Errorf("the token's audience (aud) is %q; expected is one of %q", short(strings.Join(standard.Audience, " ")), v.cfg.Audiences)
	case errors.Is(err, jwt.ErrExpired):
		return Token{}, fmt.Errorf("the token expired at %s, and the leeway is %v; here it is %s", when(standard.Expiry), v.cfg.Leeway, time.Now().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return Token{}, fmt.Errorf("the token is not valid yet: nbf %s, iat %s, and the leeway is %v; here it is %s", when(standard.NotBefore), when(standard.IssuedAt), v.cfg.Leeway, time.Now().UTC().Format(time.RFC3339))
	case err != nil:
		return Token{}, err
	case standard.Expiry == nil:
		return Token{}, errors.New("the token has no time of expiry (exp)")
	}
	name, ok := all[v.cfg.Claim].(string)
	switch {
	case !ok || name == "":
		return Token{}, fmt.Errorf("the token has no claim %q that is a text", v.cfg.Claim)
	case len(name) > nameMax:
		return Token{}, fmt.Errorf("the token's claim %q has %d bytes; the limit is %d", v.cfg.Claim, len(name), nameMax)
	case name == "*" || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return Token{}, fmt.Errorf("the token's claim %q is no name: %q", v.cfg.Claim, name)
	}
	expires := standard.Expiry.Time()
	return Token{Name: name, Expires: expires, Ends: expires.Add(v.cfg.Leeway)}, nil
}

// when writes a claim's time.
func when(n *jwt.NumericDate) string {
	if n == nil {
		return "is missing"
	}
	return n.Time().UTC().Format(time.RFC3339)
}

// short cuts text of a token for the log.
func short(text string) string { return text[:min(len(text), keyMax)] }
