package acl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
)

// A rule is stored under a key that begins with what it does, so that a rule that cannot be read is
// known to allow or to forbid. The rest is a hash of the rule.
const (
	statePrefix = "acl/"
	allowPrefix = statePrefix + "allow/"
	denyPrefix  = statePrefix + "deny/"

	rulesMax = 1000
)

// ErrTooMany is returned for a rule beyond the limit.
var ErrTooMany = errors.New("too many ACLs")

// Store is the part of eventlog.Store that ACLs need.
type Store interface {
	Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error)
	List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error)
}

// ACLs are the rules in a store. Methods may be called concurrently.
type ACLs struct {
	store  Store
	logger *slog.Logger

	last *recent.Value[*Set]
}

// New returns the rules in a store. Rules that cannot be read are logged.
func New(store Store, logger *slog.Logger) *ACLs {
	a := &ACLs{store: store, logger: logger}
	a.last = recent.New("ACLs", new(Set), a.readSet, logger)
	return a
}

// value is a rule's state.
type value struct {
	Principal string    `json:"principal"`
	Host      string    `json:"host"`
	Kind      Kind      `json:"kind"`
	Name      string    `json:"name"`
	Prefixed  bool      `json:"prefixed,omitempty"`
	Operation Operation `json:"operation"`
	Deny      bool      `json:"deny,omitempty"`
}

// List reads the rules that a filter finds from the store, in order.
func (a *ACLs) List(ctx context.Context, f Filter) ([]Binding, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	all, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	return all.find(f), nil
}

// find returns a filter's rules, in order.
func (s *stored) find(f Filter) []Binding {
	found := []Binding{}
	for _, h := range s.rules {
		if f.Finds(h.Binding) {
			found = append(found, h.Binding)
		}
	}
	slices.SortFunc(found, Binding.Compare)
	return found
}

// Create stores rules durably, and returns an error, or nil, for each. A rule that exists stays. It
// costs two store calls. Servers know of new rules within freshFor.
//
// eventlog.ErrUnsure: the rule may have been stored.
func (a *ACLs) Create(ctx context.Context, rules []Binding) []error {
	errs := make([]error, len(rules))
	fail := func(err error) []error {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = fmt.Errorf("create an ACL: %w", err)
			}
		}
		return errs
	}
	all, err := a.read(ctx)
	if err != nil {
		return fail(err)
	}
	count := len(all.rules) + len(all.damaged)
	index := make(map[string]int) // by key, in flush
	var flush []eventlog.Entry
	at := make([]int, len(rules)) // of each rule, its index in flush
	for i, b := range rules {
		at[i] = -1
		if errs[i] = b.Check(); errs[i] != nil {
			continue
		}
		key, raw := encode(b)
		if _, ok := all.rules[key]; ok {
			continue
		}
		if j, ok := index[key]; ok { // it is in the request twice
			at[i] = j
			continue
		}
		if count >= rulesMax {
			errs[i] = fmt.Errorf("create an ACL: %w: there are %d, the limit; delete some, or use prefixes", ErrTooMany, rulesMax)
			continue
		}
		count++
		at[i], index[key] = len(flush), len(flush)
		flush = append(flush, eventlog.Entry{Checks: []eventlog.Check{{Key: key}}, Puts: []eventlog.Put{{Key: key, Version: 1, Value: raw}}})
	}
	if len(flush) == 0 {
		return errs
	}
	outcomes, err := a.commit(ctx, flush)
	if err != nil {
		return fail(err)
	}
	for i, j := range at {
		if j < 0 || errors.Is(outcomes[j].Err, eventlog.ErrStale) { // another caller stored the same rule meanwhile
			continue
		}
		if err := outcomes[j].Err; err != nil {
			errs[i] = fmt.Errorf("create an ACL: %w", err)
		}
	}
	return errs
}

// Deleted is what became of a filter's rules.
type Deleted struct {
	Rules []Binding // that it found
	Errs  []error   // of each of them: nil, if the rule is gone
	Err   error     // of the filter: nothing was looked for
}

// Delete deletes the rules that filters find, and returns what became of them, by filter. A rule
// that several filters find is reported for each. It costs two store calls.
//
// eventlog.ErrUnsure: the rule may have been deleted.
func (a *ACLs) Delete(ctx context.Context, filters []Filter) []Deleted {
	done := make([]Deleted, len(filters))
	all, err := a.read(ctx)
	index := make(map[string]int) // by key, in flush
	var flush []eventlog.Entry
	for i, f := range filters {
		if done[i].Err = f.Check(); done[i].Err == nil && err != nil {
			done[i].Err = fmt.Errorf("delete ACLs: %w", err)
		}
		if done[i].Err != nil {
			continue
		}
		done[i].Rules = all.find(f)
		done[i].Errs = make([]error, len(done[i].Rules))
		for _, b := range done[i].Rules {
			key, _ := encode(b)
			if _, ok := index[key]; !ok {
				index[key] = len(flush)
				flush = append(flush, remove(key, all.rules[key].version))
			}
		}
	}
	if len(flush) == 0 {
		return done
	}
	outcomes, err := a.commit(ctx, flush)
	for i := range done {
		for j, b := range done[i].Rules {
			key, _ := encode(b)
			one := err
			if one == nil {
				one = outcomes[index[key]].Err
			}
			if one != nil && !errors.Is(one, eventlog.ErrStale) { // stale: another caller deleted it meanwhile
				done[i].Errs[j] = fmt.Errorf("delete an ACL: %w", one)
			}
		}
	}
	return done
}

// DeleteDamaged deletes the rules that cannot be read, and returns how many.
func (a *ACLs) DeleteDamaged(ctx context.Context) (int, error) {
	all, err := a.read(ctx)
	if err != nil {
		return 0, err
	}
	var flush []eventlog.Entry
	for key, version := range all.damaged {
		flush = append(flush, remove(key, version))
	}
	if len(flush) == 0 {
		return 0, nil
	}
	outcomes, err := a.commit(ctx, flush)
	if err != nil {
		return 0, fmt.Errorf("delete ACLs that cannot be read: %w", err)
	}
	n := 0
	for _, o := range outcomes {
		if o.Err == nil {
			n++
		}
		err = errors.Join(err, o.Err)
	}
	return n, err
}

func remove(key string, version eventlog.Version) eventlog.Entry {
	return eventlog.Entry{Checks: []eventlog.Check{{Key: key, Version: version}}, Puts: []eventlog.Put{{Key: key}}}
}

// commit writes a flush. This process then reads the store again before it judges.
func (a *ACLs) commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	outcomes, err := a.store.Commit(ctx, flush)
	a.last.Expire()
	return outcomes, err
}

// stored is what the store has, by key.
type stored struct {
	rules   map[string]held
	damaged map[string]eventlog.Version // they cannot be read
}

type held struct {
	Binding
	version eventlog.Version
}

// read reads all rules from the store: one store call, and one more for each rulesMax rules by
// which callers of Create that did not know of each other have exceeded it.
func (a *ACLs) read(ctx context.Context) (*stored, error) {
	kvs, err := eventlog.AllUnder(ctx, a.store.List, statePrefix, rulesMax+1)
	if err != nil {
		return nil, fmt.Errorf("list ACLs: %w", err)
	}
	all := &stored{rules: make(map[string]held, len(kvs)), damaged: make(map[string]eventlog.Version)}
	for _, kv := range kvs {
		b, err := decode(kv.Key, kv.Value)
		if err != nil {
			a.logger.Error("an ACL cannot be read; `weir acl delete --damaged` deletes it", "key", kv.Key, "err", err)
			all.damaged[kv.Key] = kv.Version
			continue
		}
		all.rules[kv.Key] = held{b, kv.Version}
	}
	return all, nil
}

// encode returns a rule's key and value.
func encode(b Binding) (key string, raw []byte) {
	raw, err := json.Marshal(value{b.Principal, b.Host, b.Kind, b.Name, b.Prefixed, b.Operation, b.Deny})
	if err != nil {
		panic(fmt.Sprintf("the rule %+v: %v", b, err)) // strings and numbers always encode
	}
	prefix := allowPrefix
	if b.Deny {
		prefix = denyPrefix
	}
	return fmt.Sprintf("%s%x", prefix, sha256.Sum256(raw)), raw
}

// decode refuses fields that it does not know, and rules that Check refuses: a field of a newer
// weir may limit the rule.
func decode(key string, raw []byte) (Binding, error) {
	var v value
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return Binding{}, err
	}
	b := Binding{v.Principal, v.Host, Rule{v.Kind, v.Name, v.Prefixed, v.Operation, v.Deny}}
	if again, _ := encode(b); again != key {
		return Binding{}, errors.New("its key is that of another rule")
	}
	return b, b.Check()
}

// mayForbid reports whether a rule that cannot be read may forbid something.
func (s *stored) mayForbid() bool {
	for key := range s.damaged {
		if !strings.HasPrefix(key, allowPrefix) {
			return true
		}
	}
	return false
}
