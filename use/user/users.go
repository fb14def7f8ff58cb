package user

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
)

const (
	statePrefix = "scram/"
	userPrefix  = statePrefix + "user/"
	secretKey   = statePrefix + "secret" // from which the answers for unknown users are derived

	usersMax   = 1000
	secretSize = 32
)

// Users are the users in a store. Methods may be called concurrently.
type Users struct {
	table  *table.Table[scram, *snapshot]
	secret []byte // used until the store has one
}

// New returns the users in a store. Users that cannot be read are logged.
func New(log table.Log, logger *slog.Logger) *Users {
	u := &Users{secret: newSecret()}
	u.table = table.New(log, logger, nil, table.Rules[scram, *snapshot]{
		Name: "users", Prefix: statePrefix, Counted: userPrefix, Max: usersMax, Decode: decode, View: u.snapshot, Repair: "so the user cannot log in: delete it and add it again",
		Show: func(key string, s scram) (string, any) {
			u := userOf(strings.TrimPrefix(key, userPrefix), table.Row[scram]{Value: s})
			return u.Name, u
		},
		Full: fmt.Errorf("%w: there are %d, the limit; delete some", ErrTooMany, usersMax),
	})
	return u
}

// scram is a row: the credentials of a user, or the secret.
type scram struct {
	credentials map[Mechanism]Credential
	secret      []byte
}

// forPasswords returns the mechanism whose credential a password is compared with.
func (h scram) forPasswords() (m Mechanism, ok bool) {
	for _, m := range Mechanisms {
		if _, ok := h.credentials[m]; ok {
			return m, true
		}
	}
	return "", false
}

// value is a user's state.
type value struct {
	SCRAM map[Mechanism]Credential `json:"scram"`
}

// List reads all users from the store, by name.
func (u *Users) List(ctx context.Context) ([]User, error) {
	all, err := u.table.Read(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]User, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if name, is := strings.CutPrefix(key, userPrefix); is {
			list = append(list, userOf(name, all[key]))
		}
	}
	return list, nil
}

// Find reads one user from the store. ErrUnknown if there is none.
func (u *Users) Find(ctx context.Context, name string) (User, error) {
	all, err := u.table.Read(ctx)
	if err != nil {
		return User{}, err
	}
	r, ok := all[userPrefix+name]
	if !ok {
		return User{}, fmt.Errorf("%w: %q", ErrUnknown, name[:min(len(name), NameMax)])
	}
	return userOf(name, r), nil
}

func userOf(name string, r table.Row[scram]) User {
	one := User{Name: name, Iterations: make(map[Mechanism]int), Damaged: r.Err != nil}
	for m, c := range r.Value.credentials {
		one.Iterations[m] = c.Iterations
	}
	return one
}

// Change is a change of one user.
type Change struct {
	Name   string
	Set    map[Mechanism]Credential
	Unset  []Mechanism // ErrUnknown if the user has no such credential
	Clear  bool        // first remove all credentials; ErrUnknown if there is no such user
	Create bool        // ErrExists if there is such a user
}

// Change makes changes to different users, durably, each as a whole or not at all, and returns an
// error, or nil, for each. A user without credentials is deleted. Servers know of a change within
// freshFor. If a user's credential changed, the next request on a connection of the user then ends
// that connection. See table.Table.Edit.
func (u *Users) Change(ctx context.Context, changes []Change) []error {
	var some atomic.Bool // at least one change is made
	edits := make([]table.Edit[scram], len(changes))
	for i, c := range changes {
		edits[i] = table.Edit[scram]{Key: userPrefix + c.Name, Verb: c.verb(), What: fmt.Sprintf("change user %q", c.Name), Decide: func(old table.Row[scram]) ([]byte, error) {
			value, err := c.decide(old)
			if err == nil {
				some.Store(true)
			}
			return value, err
		}}
	}
	secret := table.Edit[scram]{Key: secretKey, Decide: func(old table.Row[scram]) ([]byte, error) {
		if old.Exists() || !some.Load() {
			return nil, ledger.ErrUnchanged
		}
		return newSecret(), nil
	}}
	return u.table.Edit(ctx, append(edits, secret)...)[:len(changes)]
}

func (c Change) verb() audit.Verb {
	switch {
	case c.Create:
		return audit.UserCreate
	case len(c.Set) == 0:
		return audit.UserDelete
	}
	return audit.UserAlter
}

// decide returns the user's new state.
func (c Change) decide(old table.Row[scram]) ([]byte, error) {
	if err := CheckName(c.Name); err != nil {
		return nil, err
	}
	switch {
	case c.Create && old.Exists():
		return nil, ErrExists
	case c.Clear && !old.Exists():
		return nil, ErrUnknown
	case old.Err != nil && !c.Clear:
		return nil, errors.New("the user's state cannot be read; delete the user, and add it again")
	}
	next := maps.Clone(old.Value.credentials)
	if next == nil || c.Clear {
		next = make(map[Mechanism]Credential)
	}
	for _, m := range c.Unset {
		if _, ok := next[m]; !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnknown, m)
		}
		delete(next, m)
	}
	maps.Copy(next, c.Set)
	switch {
	case len(next) > 0:
		return encode(value{next}), nil
	case !old.Exists():
		return nil, ledger.ErrUnchanged
	}
	return nil, nil
}

func newSecret() []byte {
	secret := make([]byte, secretSize)
	rand.Read(secret)
	return secret
}

// decode refuses fields that it does not know: a field of a newer weir may limit the user.
func decode(key string, raw []byte) (scram, error) {
	if !strings.HasPrefix(key, userPrefix) {
		return scram{secret: raw}, nil
	}
	var v value
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return scram{}, err
	}
	for m, c := range v.SCRAM {
		if err := c.check(m); err != nil {
			return scram{}, err
		}
	}
	return scram{credentials: v.SCRAM}, nil
}

func encode(v value) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a user with %d credentials: %v", len(v.SCRAM), err)) // bytes and numbers always encode
	}
	return raw
}
