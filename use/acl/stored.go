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

	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
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

// ACLs are the rules in a store. Methods may be called concurrently.
type ACLs struct {
	table  *table.Table[Binding, *Set]
	logger *slog.Logger
}

// New returns the rules in a store. Rules that cannot be read are logged.
func New(log table.Log, logger *slog.Logger) *ACLs {
	a := &ACLs{logger: logger}
	a.table = table.New(log, logger, new(Set), table.Rules[Binding, *Set]{
		Name: "ACLs", Prefix: statePrefix, Max: rulesMax, Decode: decode, View: a.set, Repair: "`weir acl delete --damaged` deletes it",
		Deletion: audit.ACLDelete, Show: show,
		Full: fmt.Errorf("%w: there are %d, the limit; delete some, or use prefixes", ErrTooMany, rulesMax),
	})
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
	all, err := a.table.Read(ctx)
	if err != nil {
		return nil, err
	}
	return find(all, f), nil
}

// find returns a filter's rules, in order.
func find(all table.Rows[Binding], f Filter) []Binding {
	found := []Binding{}
	for _, r := range all {
		if r.Err == nil && f.Finds(r.Value) {
			found = append(found, r.Value)
		}
	}
	slices.SortFunc(found, Binding.Compare)
	return found
}

// Create stores rules durably, and returns an error, or nil, for each. A rule that exists stays.
// Servers know of new rules within freshFor. See table.Table.Edit.
func (a *ACLs) Create(ctx context.Context, rules []Binding) []error {
	edits := make([]table.Edit[Binding], len(rules))
	for i, b := range rules {
		key, raw := encode(b)
		edits[i] = table.Edit[Binding]{Key: key, Verb: audit.ACLCreate, What: "create an ACL", Decide: func(old table.Row[Binding]) ([]byte, error) {
			if err := b.Check(); err != nil {
				return nil, err
			}
			if old.Exists() {
				return nil, ledger.ErrUnchanged
			}
			return raw, nil
		}}
	}
	return a.table.Edit(ctx, edits...)
}

// Deleted is what became of a filter's rules.
type Deleted struct {
	Rules []Binding // that it found
	Errs  []error   // of each of them: nil, if the rule is gone
	Err   error     // of the filter: nothing was looked for
}

// Delete deletes the rules that filters find, and returns what became of them, by filter. A rule
// that several filters find is reported for each. See table.Table.Edit.
func (a *ACLs) Delete(ctx context.Context, filters []Filter) []Deleted {
	done := make([]Deleted, len(filters))
	all, err := a.table.Read(ctx)
	var edits []table.Edit[Binding]
	for i, f := range filters {
		if done[i].Err = f.Check(); done[i].Err == nil && err != nil {
			done[i].Err = fmt.Errorf("delete ACLs: %w", err)
		}
		if done[i].Err != nil {
			continue
		}
		done[i].Rules = find(all, f)
		for _, b := range done[i].Rules {
			key, _ := encode(b)
			edits = append(edits, table.Edit[Binding]{Key: key, Verb: audit.ACLDelete, What: "delete an ACL", Decide: table.Delete[Binding]})
		}
	}
	errs := a.table.EditFrom(ctx, all, edits...)
	for i := range done {
		n := len(done[i].Rules)
		done[i].Errs, errs = errs[:n:n], errs[n:]
	}
	return done
}

// DeleteDamaged deletes the rules that cannot be read, and returns how many.
func (a *ACLs) DeleteDamaged(ctx context.Context) (int, error) { return a.table.DeleteDamaged(ctx) }

// show returns a rule in words, for the audit.
func show(_ string, b Binding) (object string, state any) {
	return b.Principal, struct {
		Principal    string `json:"principal"`
		Effect       string `json:"effect"`
		Operation    string `json:"operation"`
		ResourceType string `json:"resource_type"`
		Name         string `json:"name"`
		Prefixed     bool   `json:"prefixed"`
		Host         string `json:"host"`
	}{b.Principal, b.Effect().String(), strings.ToLower(b.Operation.String()), b.Kind.String(), b.Name, b.Prefixed, b.Host}
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
func mayForbid(all table.Rows[Binding]) bool {
	for key, r := range all {
		if r.Err != nil && !strings.HasPrefix(key, allowPrefix) {
			return true
		}
	}
	return false
}
