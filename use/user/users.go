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

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
)

const (
	statePrefix = "scram/"
	userPrefix  = statePrefix + "user/"
	secretKey   = statePrefix + "secret" // from which the answers for unknown users are derived

	usersMax   = 1000
	secretSize = 32
)

// Store is the part of eventlog.Store that users need.
type Store interface {
	Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error)
	List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error)
}

// Users are the users in a store. Methods may be called concurrently.
type Users struct {
	store  Store
	logger *slog.Logger
	secret []byte // used until the store has one

	last *recent.Value[*snapshot]
}

// New returns the users in a store. Users that cannot be read are logged.
func New(store Store, logger *slog.Logger) *Users {
	u := &Users{store: store, logger: logger, secret: newSecret()}
	u.last = recent.New("users", nil, func(ctx context.Context) (*snapshot, error) {
		all, err := u.read(ctx)
		if err != nil {
			return nil, err
		}
		return newSnapshot(all), nil
	}, logger)
	return u
}

// stored is what the store has.
type stored struct {
	users  map[string]held
	secret []byte // never empty
	kept   bool   // the store has the secret
}

// held is a user in the store.
type held struct {
	scram   map[Mechanism]Credential
	version eventlog.Version
	damaged bool // its value cannot be read
}

// forPasswords returns the mechanism whose credential a password is compared with.
func (h held) forPasswords() (m Mechanism, ok bool) {
	for _, m := range Mechanisms {
		if _, ok := h.scram[m]; ok {
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
	all, err := u.read(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]User, 0, len(all.users))
	for _, name := range slices.Sorted(maps.Keys(all.users)) {
		list = append(list, all.users[name].user(name))
	}
	return list, nil
}

// Find reads one user from the store. ErrUnknown if there is none.
func (u *Users) Find(ctx context.Context, name string) (User, error) {
	all, err := u.read(ctx)
	if err != nil {
		return User{}, err
	}
	h, ok := all.users[name]
	if !ok {
		return User{}, fmt.Errorf("%w: %q", ErrUnknown, name[:min(len(name), NameMax)])
	}
	return h.user(name), nil
}

func (h held) user(name string) User {
	one := User{Name: name, Iterations: make(map[Mechanism]int), Damaged: h.damaged}
	for m, c := range h.scram {
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
// error, or nil, for each. A user without credentials is deleted. It costs two store calls. Servers
// know of a change within freshFor. Then the next request on a connection of a user whose
// credential changed ends it.
//
// eventlog.ErrUnsure: the change may have been made. eventlog.ErrStale: another caller changed the
// same user meanwhile, and nothing was done.
func (u *Users) Change(ctx context.Context, changes []Change) []error {
	errs := make([]error, len(changes))
	fail := func(err error) []error {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = fmt.Errorf("change user %q: %w", changes[i].Name, err)
			}
		}
		return errs
	}
	all, err := u.read(ctx)
	if err != nil {
		return fail(err)
	}
	count := len(all.users)
	var flush []eventlog.Entry
	var of []int // of each entry of flush, its change
	for i, c := range changes {
		old := all.users[c.Name]
		entry, err := c.entry(old)
		if err == nil && old.version == 0 {
			if count++; count > usersMax {
				err = fmt.Errorf("%w: there are %d, the limit; delete some", ErrTooMany, usersMax)
			}
		}
		if err != nil {
			errs[i] = fmt.Errorf("change user %q: %w", c.Name, err)
			continue
		}
		flush, of = append(flush, entry), append(of, i)
	}
	if len(flush) == 0 {
		return errs
	}
	if !all.kept {
		flush = append(flush, eventlog.Entry{Checks: []eventlog.Check{{Key: secretKey}}, Puts: []eventlog.Put{{Key: secretKey, Version: 1, Value: newSecret()}}})
	}
	outcomes, err := u.commit(ctx, flush)
	if err != nil {
		return fail(err)
	}
	for at, i := range of {
		if err := outcomes[at].Err; err != nil {
			errs[i] = fmt.Errorf("change user %q: %w", changes[i].Name, err)
		}
	}
	return errs
}

// entry returns the entry that makes a change.
func (c Change) entry(old held) (eventlog.Entry, error) {
	if err := CheckName(c.Name); err != nil {
		return eventlog.Entry{}, err
	}
	switch {
	case c.Create && old.version > 0:
		return eventlog.Entry{}, ErrExists
	case c.Clear && old.version == 0:
		return eventlog.Entry{}, ErrUnknown
	case old.damaged && !c.Clear:
		return eventlog.Entry{}, errors.New("the user's state cannot be read; delete the user, and add it again")
	}
	next := maps.Clone(old.scram)
	if next == nil || c.Clear {
		next = make(map[Mechanism]Credential)
	}
	for _, m := range c.Unset {
		if _, ok := next[m]; !ok {
			return eventlog.Entry{}, fmt.Errorf("%w: %s", ErrUnknown, m)
		}
		delete(next, m)
	}
	maps.Copy(next, c.Set)
	key := userPrefix + c.Name
	put := eventlog.Put{Key: key} // deletes
	if len(next) > 0 {
		put = eventlog.Put{Key: key, Version: old.version + 1, Value: encode(value{next})}
	}
	return eventlog.Entry{Checks: []eventlog.Check{{Key: key, Version: old.version}}, Puts: []eventlog.Put{put}}, nil
}

// commit writes a flush. The next lookup of this process reads the store again.
func (u *Users) commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	outcomes, err := u.store.Commit(ctx, flush)
	u.last.Expire()
	return outcomes, err
}

// read reads all users from the store: one store call, and one more for each usersMax users by
// which callers of Change that did not know of each other have exceeded it.
func (u *Users) read(ctx context.Context) (stored, error) {
	kvs, err := eventlog.AllUnder(ctx, u.store.List, statePrefix, usersMax+2) // with secretKey
	if err != nil {
		return stored{}, fmt.Errorf("list users: %w", err)
	}
	all := stored{users: make(map[string]held, len(kvs))}
	for _, kv := range kvs {
		name, ok := strings.CutPrefix(kv.Key, userPrefix)
		if !ok {
			if kv.Key == secretKey && len(kv.Value) > 0 {
				all.secret, all.kept = kv.Value, true
			}
			continue
		}
		h := held{version: kv.Version}
		if h.scram, err = decode(kv.Value); err != nil {
			u.logger.Error("a user cannot be read, so it cannot log in: delete it and add it again", "user", name, "err", err)
			h.damaged = true
		}
		all.users[name] = h
	}
	if !all.kept {
		all.secret = u.secret
	}
	return all, nil
}

func newSecret() []byte {
	secret := make([]byte, secretSize)
	rand.Read(secret)
	return secret
}

// decode refuses fields that it does not know: a field of a newer weir may limit the user.
func decode(raw []byte) (map[Mechanism]Credential, error) {
	var v value
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	for m, c := range v.SCRAM {
		if err := c.check(m); err != nil {
			return nil, err
		}
	}
	return v.SCRAM, nil
}

func encode(v value) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a user with %d credentials: %v", len(v.SCRAM), err)) // bytes and numbers always encode
	}
	return raw
}
