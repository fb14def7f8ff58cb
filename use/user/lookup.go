package user

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/use/table"
)

const (
	// freshFor is how old a snapshot may be for an open connection. The connection ends at the
	// first request after a change of its user is known.
	freshFor = 2 * time.Second
	// freshForLogin is the same for a login. It does not depend on whether there is such a user,
	// because the time of an answer would tell.
	freshForLogin = 250 * time.Millisecond
)

// snapshot is all users at a moment. It is never changed, only replaced.
type snapshot struct {
	users  map[string]scram // by name; those that cannot be read have no credentials
	secret []byte           // never empty
	kept   bool             // the store has the secret
	ring   []point          // by hash: a credential to imitate for an unknown user
	logins []point          // the same, of the credentials that passwords are compared with
}

// point is a user's credential in the ring.
type point struct {
	hash []byte
	m    Mechanism
	like Credential
}

func (u *Users) snapshot(all table.Rows[scram]) *snapshot {
	s := &snapshot{users: make(map[string]scram, len(all)), secret: all[secretKey].Value.secret}
	if s.kept = len(s.secret) > 0; !s.kept {
		s.secret = u.secret
	}
	for key, r := range all {
		name, is := strings.CutPrefix(key, userPrefix)
		if !is {
			continue
		}
		s.users[name] = r.Value
		for m, c := range r.Value.credentials {
			s.ring = append(s.ring, point{s.derive("ring", m, name), m, c})
		}
		if m, ok := r.Value.forPasswords(); ok {
			s.logins = append(s.logins, point{s.derive("login", m, name), m, r.Value.credentials[m]})
		}
	}
	slices.SortFunc(s.logins, func(a, b point) int { return bytes.Compare(a.hash, b.hash) })
	slices.SortFunc(s.ring, func(a, b point) int { return cmp.Or(cmp.Compare(a.m, b.m), bytes.Compare(a.hash, b.hash)) })
	return s
}

// Found is the outcome of a lookup.
type Found struct {
	Credential
	name  string
	m     Mechanism
	known bool // false: the credential is one that no password has
}

// Lookup returns a user's credential. For an unknown user it returns one that always has the same
// salt and fits no password, after the same work: a client cannot tell that there is no such user.
// eventlog.ErrUnavailable: the store is unavailable, and the users were last read more than
// recent.StaleMax ago.
//
// However many logins there are, they cost one store call every freshForLogin, for which one caller
// waits.
func (u *Users) Lookup(ctx context.Context, name string, m Mechanism) (Found, error) {
	last, err := u.table.Recent(ctx, freshForLogin)
	if err != nil {
		return Found{}, err
	}
	s := last.Value
	fake := s.fake(name, m) // also for a user that exists
	c, known := s.users[name].credentials[m]
	if !known {
		c = fake
	}
	return Found{c, name, m, known}, nil
}

// Any reports whether the store has users, or had some: deleting the last user must not allow
// access without credentials. eventlog.ErrUnavailable: see Lookup.
func (u *Users) Any(ctx context.Context) (bool, error) {
	last, err := u.table.Recent(ctx, freshFor)
	if err != nil {
		return false, err
	}
	return last.Value.kept || len(last.Value.users) > 0, nil
}

// Name returns the name that was looked for.
func (f Found) Name() string { return f.name }

// Known reports whether the user exists.
func (f Found) Known() bool { return f.known }

// Still returns nil while the user's credential is the one that Lookup returned.
func (u *Users) Still(ctx context.Context, f Found) error {
	last, err := u.table.Recent(ctx, freshFor)
	if err != nil {
		return err
	}
	c, ok := last.Value.users[f.name].credentials[f.m]
	switch {
	case !ok:
		return fmt.Errorf("%w: user %q with %s; it was deleted", ErrUnknown, f.name, f.m)
	case !bytes.Equal(c.StoredKey, f.StoredKey) || !bytes.Equal(c.Salt, f.Salt):
		return fmt.Errorf("the password of user %q was changed", f.name)
	}
	return nil
}

// fake makes a credential for a user who does not exist. Its number of iterations, and what its
// salt looks like, are those of some user who exists: for each name always the same one, until that
// user changes.
func (s *snapshot) fake(name string, m Mechanism) Credential {
	like := Credential{Iterations: IterationsDefault}
	at, _ := slices.BinarySearchFunc(s.ring, point{hash: s.derive("like", m, name), m: m}, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.m, b.m), bytes.Compare(a.hash, b.hash))
	})
	switch {
	case at < len(s.ring) && s.ring[at].m == m:
		like = s.ring[at].like
	case at > 0 && s.ring[at-1].m == m:
		like = s.ring[at-1].like
	}
	salt := saltOf(s.derive("salt", m, name))
	if !looksMade(like.Salt) {
		random := s.derive("bytes", m, name)
		for len(random) < len(like.Salt) {
			random = append(random, s.derive("more", m, string(random))...)
		}
		salt = random[:len(like.Salt)]
	}
	size := m.Hash().Size()
	key := append(s.derive("key", m, name), s.derive("key2", m, name)...)[:size]
	return Credential{Salt: salt, Iterations: like.Iterations, StoredKey: key, ServerKey: key}
}

// looksMade reports whether saltOf could have made a salt.
func looksMade(salt []byte) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return len(salt) <= 26 && !bytes.ContainsFunc(salt, other)
}

func (s *snapshot) derive(what string, m Mechanism, name string) []byte {
	h := hmac.New(sha256.New, s.secret)
	fmt.Fprintf(h, "%s\x00%s\x00%s", what, m, name)
	return h.Sum(nil)
}
