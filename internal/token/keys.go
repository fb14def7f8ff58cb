package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/weir-log/weir/eventlog"
)

const (
	// refetchEvery is the shortest time between two fetches, so that tokens with keys that nobody
	// knows cost the issuer little.
	refetchEvery = 10 * time.Second
	// refreshURL and refreshFile are how old keys become before they are fetched again although
	// nobody misses one: what the issuer has withdrawn is not accepted for longer.
	refreshURL  = 10 * time.Minute
	refreshFile = refetchEvery
	// rsaMin is the shortest RSA key, in bits (RFC 7518, 3.3).
	rsaMin = 2048
)

// signer is a public key of the issuer.
type signer struct {
	id         string // kid; "" for none
	algorithms []jose.SignatureAlgorithm
	key        any // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// known is what is known of the issuer's keys. It is never changed, only replaced.
type known struct {
	signers []signer  // nil: they were never fetched
	at      time.Time // when they were fetched
	tried   time.Time // when the last fetch began
	err     error     // of the last fetch
}

// keys are the issuer's. Methods may be called concurrently.
type keys struct {
	from    source
	every   time.Duration // between two fetches
	logger  *slog.Logger
	last    atomic.Pointer[known]
	fetches chan struct{} // has an element while a fetch runs
}

func newKeys(jwks string, logger *slog.Logger) (*keys, error) {
	k := &keys{every: refreshURL, logger: logger, fetches: make(chan struct{}, 1)}
	k.last.Store(&known{})
	var err error
	if k.from, err = newSource(jwks); err != nil {
		return nil, err
	}
	if _, is := k.from.(file); is {
		k.every = refreshFile
		signers, err := k.read(context.Background())
		if err != nil {
			return nil, err
		}
		k.last.Store(&known{signers: signers, at: time.Now(), tried: time.Now()})
	}
	return k, nil
}

// run fetches the keys now and then.
func (k *keys) run(ctx context.Context) {
	fresh := refetchEvery // a check may have fetched them just now
	for ctx.Err() == nil {
		k.renew(ctx, fresh)
		fresh = k.every
		if k.last.Load().err != nil {
			fresh = refetchEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(fresh - time.Since(k.last.Load().tried)):
		}
	}
}

// find returns the keys that may have signed a token. There is more than one if the issuer gave
// several the same id. eventlog.ErrUnavailable: it is not known whether there is such a key,
// because the keys were not fetched since the call began. A client that tries again gets an answer
// within refetchEvery.
func (k *keys) find(ctx context.Context, id string, by jose.SignatureAlgorithm) ([]any, error) {
	began := time.Now()
	found, err := k.last.Load().find(id, by)
	if !errors.Is(err, errUnknownKey) {
		return found, err
	}
	k.renew(ctx, refetchEvery)
	now := k.last.Load()
	found, err = now.find(id, by)
	switch {
	case !errors.Is(err, errUnknownKey):
		return found, err
	case now.err != nil:
		return nil, fmt.Errorf("%w: %w, and the keys cannot be fetched: %w", eventlog.ErrUnavailable, err, now.err)
	case now.tried.Before(began):
		return nil, fmt.Errorf("%w: %w among those fetched at %s; they are not fetched again within %v", eventlog.ErrUnavailable, err, now.tried.UTC().Format(time.RFC3339), refetchEvery)
	}
	return nil, err
}

var errUnknownKey = errors.New("the issuer has no such key")

func (n *known) find(id string, by jose.SignatureAlgorithm) ([]any, error) {
	var fit []any
	other := false // there is a key with this id, for other algorithms
	for _, s := range n.signers {
		switch {
		case id != "" && s.id != id:
		case slices.Contains(s.algorithms, by):
			fit = append(fit, s.key)
		default:
			other = id != ""
		}
	}
	switch {
	case id == "" && len(fit) > 1:
		return nil, fmt.Errorf("the token does not name its key (kid), and the issuer has %d for %s", len(fit), by)
	case len(fit) > 0:
		return fit, nil
	case other:
		return nil, fmt.Errorf("the key %q does not sign with %s", id, by)
	}
	return nil, fmt.Errorf("%w: %q, for %s", errUnknownKey, id, by)
}

// renew fetches the keys if the last fetch began longer ago than fresh. One fetch runs at a time;
// the other callers wait for it.
func (k *keys) renew(ctx context.Context, fresh time.Duration) {
	select {
	case k.fetches <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-k.fetches }()
	before := k.last.Load()
	if time.Since(before.tried) < fresh {
		return
	}
	next := &known{signers: before.signers, at: before.at, tried: time.Now()}
	signers, err := k.read(ctx)
	switch {
	case err == nil:
		next.signers, next.at = signers, time.Now()
	case ctx.Err() != nil: // the caller no longer wants it; that says nothing about the issuer
		next.err = before.err
	default:
		next.err = err
	}
	k.last.Store(next)
	k.say(before, next)
}

// read fetches the keys.
func (k *keys) read(ctx context.Context) ([]signer, error) {
	text, err := k.from.fetch(ctx)
	if err != nil {
		return nil, err
	}
	signers, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.from, err)
	}
	return signers, nil
}

// say logs what a fetch changed.
func (k *keys) say(before, after *known) {
	ids := func(n *known) string {
		var all []string
		for _, s := range n.signers {
			all = append(all, s.id)
		}
		return strings.Join(all, " ")
	}
	switch {
	case after.err != nil && after.signers == nil && before.err == nil:
		k.logger.Warn("the keys of OAuth tokens cannot be fetched; until they are, nobody can log in with a token", "from", k.from.String(), "err", after.err, "retry_in", refetchEvery)
	case after.err != nil && before.err == nil:
		k.logger.Warn("the keys of OAuth tokens cannot be fetched; the last known keys are used", "from", k.from.String(), "err", after.err, "keys", ids(after), "retry_in", refetchEvery)
	case after.err == nil && (before.err != nil || ids(before) != ids(after)):
		k.logger.Info("the keys of OAuth tokens were fetched", "from", k.from.String(), "keys", ids(after))
	}
}

// parse returns the keys of a JWKS that can sign tokens. It ignores others: a JWKS may have keys
// for encryption, and of kinds that are not known yet (RFC 7517, 5).
func parse(text []byte) ([]signer, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is not a JWKS, a JSON object with keys: %w", err)
	}
	var usable []signer
	why := errors.New("it has none at all")
	for _, raw := range set.Keys {
		s, err := signerOf(raw)
		if err != nil {
			why = err
			continue
		}
		usable = append(usable, s)
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("none of its %d keys can sign tokens: %w", len(set.Keys), why)
	}
	return usable, nil
}

func signerOf(raw []byte) (signer, error) {
	var k jose.JSONWebKey
	if err := k.UnmarshalJSON(raw); err != nil {
		return signer{}, err
	}
	if k.Use != "" && k.Use != "sig" {
		return signer{}, fmt.Errorf("the key %q is not for signatures: its use is %q", k.KeyID, k.Use)
	}
	s := signer{id: k.KeyID, key: k.Public().Key}
	switch key := s.key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < rsaMin {
			return signer{}, fmt.Errorf("the RSA key %q has %d bits; %d are needed", k.KeyID, key.N.BitLen(), rsaMin)
		}
		s.algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	case *ecdsa.PublicKey:
		s.algorithms = byCurve[key.Curve]
	case ed25519.PublicKey:
		s.algorithms = []jose.SignatureAlgorithm{jose.EdDSA}
	default:
		return signer{}, fmt.Errorf("the key %q is not a public key", k.KeyID)
	}
	if k.Algorithm != "" {
		by := jose.SignatureAlgorithm(k.Algorithm)
		if !slices.Contains(s.algorithms, by) {
			return signer{}, fmt.Errorf("the key %q does not fit its algorithm, %q", k.KeyID, k.Algorithm)
		}
		s.algorithms = []jose.SignatureAlgorithm{by}
	}
	return s, nil
}

var byCurve = map[elliptic.Curve][]jose.SignatureAlgorithm{
	elliptic.P256(): {jose.ES256}, elliptic.P384(): {jose.ES384}, elliptic.P521(): {jose.ES512},
}
