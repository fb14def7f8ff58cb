package apikey

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// freshFor is how old a snapshot may be. Within it, new, revoked and rotated keys reach every server.
	freshFor = 2 * time.Second
	// freshForUnknown is the same for a key that the snapshot does not have: it may have been made just now.
	freshForUnknown = 250 * time.Millisecond
	// patience is how old a snapshot may be for a caller that does not wait while another caller reads a newer one.
	patience = 5 * time.Second
	// staleMax is how long the last snapshot is used while the store is unavailable.
	staleMax = 10 * time.Minute
	// askMax bounds the wait for the store.
	askMax = 2 * time.Second

	secretPrefix = "weir_"
)

// snapshot is all keys at a moment. It is never changed, only replaced.
type snapshot struct {
	keys  map[string]held
	at    time.Time // when the store was read
	tried time.Time // when reading the store was last tried
	err   error     // of the last try
}

// Check returns the identity of a secret. ErrUnknown, ErrRevoked, ErrExpired, ErrNotYet or ErrDamaged: the secret is not valid.
// eventlog.ErrUnavailable: not known, because the store is unavailable and the last snapshot is older than staleMax.
//
// Idle keys cost nothing; keys in use cost one store call every freshFor, for which one caller waits.
func (k *Keys) Check(ctx context.Context, secret string) (Identity, error) {
	id, ok := IDOf(secret)
	if !ok {
		return Identity{}, fmt.Errorf("%w: the text does not have the form of an API key", ErrUnknown)
	}
	s, err := k.snapshot(ctx, freshFor)
	if err != nil {
		return Identity{}, err
	}
	if _, known := s.keys[id]; !known {
		if s, err = k.snapshot(ctx, freshForUnknown); err != nil {
			return Identity{}, err
		}
	}
	h := s.keys[id] // if there is no such key the sum is zero, which no secret has
	sum := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(sum[:], h.sum[:]) != 1 {
		return Identity{}, fmt.Errorf("%w: its id is %s", ErrUnknown, id)
	}
	h.age += time.Since(s.at)
	return Identity{h.Key}, h.state()
}

// Still returns nil while the key of an identity that Check returned is valid, and for Everybody while there are no keys. Otherwise it
// returns an error of Check.
func (k *Keys) Still(ctx context.Context, id Identity) error {
	s, err := k.snapshot(ctx, freshFor)
	switch {
	case err != nil:
		return err
	case id.ID() == "" && len(s.keys) > 0:
		return fmt.Errorf("%w: no key was sent, because there were no keys then", ErrUnknown)
	case id.ID() == "":
		return nil
	}
	h, ok := s.keys[id.ID()]
	if !ok {
		return fmt.Errorf("%w: its id is %s", ErrUnknown, id.ID())
	}
	h.age += time.Since(s.at)
	return h.state()
}

// Any reports whether the store has keys, including revoked and expired ones: revoking the last key must not allow access without a
// key.
func (k *Keys) Any(ctx context.Context) (bool, error) {
	s, err := k.snapshot(ctx, freshFor)
	return err == nil && len(s.keys) > 0, err
}

// Looks reports whether a text looks like a secret, valid or not.
func Looks(text string) bool {
	_, ok := IDOf(text)
	return ok
}

// IDOf takes the id out of a secret, valid or not.
func IDOf(secret string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok || len(rest) != idLength+1+randomLength || rest[idLength] != '_' {
		return "", false
	}
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if strings.ContainsFunc(rest[:idLength], strange) || strings.ContainsFunc(rest[idLength+1:], strange) {
		return "", false
	}
	return rest[:idLength], true
}

// snapshot returns the last snapshot, and reads a newer one if the last attempt is longer ago than fresh.
func (k *Keys) snapshot(ctx context.Context, fresh time.Duration) (*snapshot, error) {
	s := k.last.Load()
	if time.Since(s.tried) < fresh {
		return s.usable()
	}
	if !k.asking.TryLock() {
		if time.Since(s.at) < patience || s.err != nil {
			return s.usable()
		}
		k.asking.Lock() // for askMax at most
	}
	defer k.asking.Unlock()
	if s = k.last.Load(); time.Since(s.tried) >= fresh { // no other caller read it meanwhile
		s = k.ask(ctx, s)
		k.last.Store(s)
	}
	return s.usable()
}

// ask reads the keys. If the store does not answer, the old keys stay.
func (k *Keys) ask(ctx context.Context, old *snapshot) *snapshot {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askMax)
	defer cancel()
	keys, err := k.read(ctx)
	now := time.Now()
	if err != nil {
		if old.err == nil {
			k.logger.Warn("API keys cannot be read; the last known keys are used", "error", err, "for", staleMax)
		}
		return &snapshot{keys: old.keys, at: old.at, tried: now, err: err}
	}
	return &snapshot{keys: keys, at: now, tried: now}
}

func (s *snapshot) usable() (*snapshot, error) {
	if since := time.Since(s.at); s.err != nil && since > staleMax {
		return nil, fmt.Errorf("%w: API keys cannot be read: %w", eventlog.ErrUnavailable, s.err)
	}
	return s, nil
}
