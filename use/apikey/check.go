package apikey

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"
)

const (
	// freshFor is how old the keys that this process has read may be. Within it, new, revoked and
	// rotated keys reach every server.
	freshFor = 2 * time.Second
	// freshForUnknown is the same for a key that is not among them: it may have been made just now.
	freshForUnknown = 250 * time.Millisecond

	// Prefix is the beginning of every secret.
	Prefix = "weir_"
)

// Check returns the identity of a secret. ErrUnknown, ErrRevoked, ErrExpired, ErrNotYet or
// ErrDamaged: the secret is not valid. eventlog.ErrUnavailable: not known, because the store is
// unavailable and the keys were last read more than recent.StaleMax ago.
//
// Idle keys cost nothing; keys in use cost one store call every freshFor, for which one caller
// waits.
func (k *Keys) Check(ctx context.Context, secret string) (Identity, error) {
	id, ok := IDOf(secret)
	if !ok {
		return Identity{}, fmt.Errorf("%w: the text does not have the form of an API key", ErrUnknown)
	}
	s, err := k.table.Recent(ctx, freshFor)
	if err != nil {
		return Identity{}, err
	}
	if _, known := s.Value[id]; !known {
		if s, err = k.table.Recent(ctx, freshForUnknown); err != nil {
			return Identity{}, err
		}
	}
	h := s.Value[id] // if there is no such key the sum is zero, which no secret has
	sum := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(sum[:], h.sum[:]) != 1 {
		return Identity{}, fmt.Errorf("%w: its id is %s", ErrUnknown, id)
	}
	h.age += time.Since(s.At)
	return Identity{h.Key}, h.state()
}

// Still returns nil while the key of an identity that Check returned is valid, and for Everybody
// while there are no keys. Otherwise it returns an error of Check.
func (k *Keys) Still(ctx context.Context, id Identity) error {
	s, err := k.table.Recent(ctx, freshFor)
	switch {
	case err != nil:
		return err
	case id.ID() == "" && len(s.Value) > 0:
		return fmt.Errorf("%w: no key was sent, because there were no keys then", ErrUnknown)
	case id.ID() == "":
		return nil
	}
	h, ok := s.Value[id.ID()]
	if !ok {
		return fmt.Errorf("%w: its id is %s", ErrUnknown, id.ID())
	}
	h.age += time.Since(s.At)
	return h.state()
}

// Any reports whether the store has keys, including revoked and expired ones: revoking the last key
// must not allow access without a key.
func (k *Keys) Any(ctx context.Context) (bool, error) {
	s, err := k.table.Recent(ctx, freshFor)
	return err == nil && len(s.Value) > 0, err
}

// Looks reports whether a text looks like a secret, valid or not.
func Looks(text string) bool {
	_, ok := IDOf(text)
	return ok
}

// IDOf takes the id out of a secret, valid or not.
func IDOf(secret string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(secret, Prefix)
	if !ok || len(rest) != idLength+1+randomLength || rest[idLength] != '_' {
		return "", false
	}
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if strings.ContainsFunc(rest[:idLength], strange) || strings.ContainsFunc(rest[idLength+1:], strange) {
		return "", false
	}
	return rest[:idLength], true
}
