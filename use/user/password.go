package user

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// rememberedFor is how long a checked password is remembered.
const rememberedFor = time.Minute

// ErrPassword is returned for a password that is not the user's.
var ErrPassword = errors.New("the password is not that of the user")

// Passwords checks passwords that clients send as they are, which costs up to IterationsMax hashes
// each. It remembers the password of each user that was right last, so that a client that sends it
// with every request costs one HMAC. Methods may be called concurrently.
type Passwords struct {
	users  *Users
	secret []byte // of this process

	mu   sync.Mutex // guards seen
	seen map[string]remembered
}

// remembered is a user's password that was right.
type remembered struct {
	mac   []byte // of name and password, under Passwords.secret
	found Found
	until time.Time
}

// NewPasswords returns what checks the passwords of users.
func NewPasswords(users *Users) *Passwords {
	return &Passwords{users: users, secret: newSecret(), seen: make(map[string]remembered)}
}

// Recall returns the credential that this password fits, if that was checked within the last minute
// and the user has not changed since. It costs an HMAC, and a store call every freshFor.
// eventlog.ErrUnavailable: see Lookup.
func (p *Passwords) Recall(ctx context.Context, name, password string) (found Found, ok bool, err error) {
	mac := p.mac(name, password)
	p.mu.Lock()
	r, ok := p.seen[name]
	p.mu.Unlock()
	if !ok || subtle.ConstantTimeCompare(r.mac, mac) != 1 || !time.Now().Before(r.until) {
		return Found{}, false, nil
	}
	switch err := p.users.Still(ctx, r.found); {
	case errors.Is(err, eventlog.ErrUnavailable):
		return Found{}, false, err
	case err != nil: // it was changed or deleted
		return Found{}, false, nil
	}
	return r.found, true, nil
}

// Check compares a password with the user's credential, and remembers it if it fits. ErrUnknown or
// ErrPassword: it does not. Both come after the same work, so a client that is not told which of
// the two it is cannot tell which users there are. eventlog.ErrUnavailable: see Lookup.
func (p *Passwords) Check(ctx context.Context, name, password string) (Found, error) {
	if err := CheckName(name); err != nil {
		return Found{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if len(password) > passwordMax {
		return Found{}, fmt.Errorf("%w %q: %w", ErrPassword, name, invalid("length of the password", strconv.Itoa(len(password)), fmt.Sprintf("at most %d bytes are allowed", passwordMax)))
	}
	found, err := p.users.login(ctx, name)
	if err != nil {
		return Found{}, err
	}
	fits, err := found.fits(password)
	switch {
	case err != nil:
		return Found{}, err
	case !found.known:
		return Found{}, fmt.Errorf("%w: %q", ErrUnknown, name)
	case !fits:
		return Found{}, fmt.Errorf("%w %q", ErrPassword, name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= 2*usersMax { // some passwords are those of users who were deleted
		clear(p.seen)
	}
	p.seen[name] = remembered{p.mac(name, password), found, time.Now().Add(rememberedFor)}
	return found, nil
}

func (p *Passwords) mac(name, password string) []byte {
	h := hmac.New(sha256.New, p.secret)
	fmt.Fprintf(h, "%d:%s%s", len(name), name, password)
	return h.Sum(nil)
}

// login returns the credential that a password of the user is compared with. For an unknown user it
// is the one of some user who exists, which costs the same work, and known is false.
func (u *Users) login(ctx context.Context, name string) (Found, error) {
	last, err := u.table.Recent(ctx, freshForLogin) // for an unknown user, too: see freshForLogin
	if err != nil {
		return Found{}, err
	}
	s := last.Value
	if m, known := s.users[name].forPasswords(); known {
		return Found{s.users[name].credentials[m], name, m, true}, nil
	}
	if len(s.logins) == 0 {
		return Found{Credential{Salt: saltOf(s.derive("salt", SHA256, name)), Iterations: IterationsDefault}, name, SHA256, false}, nil
	}
	at, _ := slices.BinarySearchFunc(s.logins, s.derive("like", "", name), func(p point, hash []byte) int { return bytes.Compare(p.hash, hash) })
	like := s.logins[at%len(s.logins)]
	return Found{like.like, name, like.m, false}, nil
}

// fits reports whether a password is the credential's. It takes milliseconds of processor time.
func (f Found) fits(password string) (bool, error) {
	salted, err := pbkdf2.Key(f.m.Hash, password, f.Salt, f.Iterations, f.m.Hash().Size())
	if err != nil {
		return false, fmt.Errorf("salt the password: %w", err)
	}
	c, err := FromSalted(f.m, f.Salt, salted, f.Iterations)
	return err == nil && subtle.ConstantTimeCompare(c.StoredKey, f.StoredKey) == 1, err
}
