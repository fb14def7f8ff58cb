package quota

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
)

const statePrefix = "quota/"

// Quotas are the quotas in a store. Methods may be called concurrently.
type Quotas struct {
	table *table.Table[Quota, *set]
}

// New returns the quotas in a store. Quotas that cannot be read are logged, and bound nobody.
func New(log table.Log, logger *slog.Logger) *Quotas {
	return &Quotas{table.New(log, logger, nil, table.Rules[Quota, *set]{
		Name: "quotas", Prefix: statePrefix, Max: entitiesMax, Decode: decode, View: newSet, Repair: "it bounds nobody; `weir quota delete --damaged` removes it",
		Deletion: audit.QuotaDelete, Show: func(_ string, q Quota) (string, any) { return q.Entity.String(), q.value() },
		Full: fmt.Errorf("%w: there are those of %d entities, the limit; remove some, or use defaults", ErrTooMany, entitiesMax),
	})}
}

// List reads the quotas that a filter finds from the store, in order.
func (q *Quotas) List(ctx context.Context, f Filter) ([]Quota, error) {
	all, err := q.table.Read(ctx)
	if err != nil {
		return nil, err
	}
	found := []Quota{}
	for _, r := range all {
		if r.Err == nil && f.Finds(r.Value.Entity) {
			found = append(found, r.Value)
		}
	}
	slices.SortFunc(found, func(a, b Quota) int { return a.Entity.Compare(b.Entity) })
	return found, nil
}

// Find reads what one entity may use from the store; it has no limits if there are none.
func (q *Quotas) Find(ctx context.Context, e Entity) (Quota, error) {
	all, err := q.table.Read(ctx)
	if err != nil {
		return Quota{}, err
	}
	if r, ok := all[keyOf(e)]; ok && r.Err == nil {
		return r.Value, nil
	}
	return Quota{Entity: e}, nil
}

// Change is a change of what one entity may use.
type Change struct {
	Entity Entity
	Clear  bool // first remove all limits; ErrUnknown if there are none
	Set    map[Kind]float64
	Unset  []Kind // a limit that is not there is no error, as in Kafka
}

// Change makes changes to different entities, durably, each as a whole or not at all, and returns
// an error, or nil, for each. Servers know of a change within freshFor. See table.Table.Edit.
func (q *Quotas) Change(ctx context.Context, changes []Change) []error {
	return q.table.Edit(ctx, edits(changes)...)
}

// Try returns what Change would return for each change, as far as it can be known without making
// it.
func (q *Quotas) Try(ctx context.Context, changes []Change) []error {
	return q.table.Try(ctx, edits(changes)...)
}

// DeleteDamaged deletes the quotas that cannot be read, and returns how many.
func (q *Quotas) DeleteDamaged(ctx context.Context) (int, error) { return q.table.DeleteDamaged(ctx) }

func edits(changes []Change) []table.Edit[Quota] {
	all := make([]table.Edit[Quota], len(changes))
	for i, c := range changes {
		verb := audit.QuotaAlter
		if c.Clear && len(c.Set) == 0 {
			verb = audit.QuotaDelete
		}
		all[i] = table.Edit[Quota]{Verb: verb, Key: keyOf(c.Entity), What: "change the quotas of " + c.Entity.short(), Decide: c.decide}
	}
	return all
}

// decide returns the entity's new quota.
func (c Change) decide(old table.Row[Quota]) ([]byte, error) {
	if err := c.Entity.Check(); err != nil {
		return nil, err
	}
	if c.Clear && (!old.Exists() || old.Err != nil) {
		return nil, ErrUnknown
	}
	next := maps.Clone(old.Value.Limits)
	if next == nil || c.Clear {
		next = make(map[Kind]float64)
	}
	for _, k := range c.Unset {
		delete(next, k)
	}
	for k, limit := range c.Set {
		if err := c.Entity.CheckLimit(k, limit); err != nil {
			return nil, err
		}
		next[k] = limit
	}
	switch {
	case old.Err != nil:
		return nil, ErrDamaged
	case maps.Equal(next, old.Value.Limits):
		return nil, ledger.ErrUnchanged
	case len(next) == 0:
		return nil, nil
	}
	return encode(Quota{c.Entity, next}), nil
}

// value is a quota's state.
type value struct {
	User     *part            `json:"user,omitempty"`
	ClientID *part            `json:"client_id,omitempty"`
	IP       *part            `json:"ip,omitempty"`
	Limits   map[Kind]float64 `json:"limits,omitempty"`
}

// part is a name, or the default.
type part struct {
	Name    string `json:"name,omitempty"`
	Default bool   `json:"default,omitempty"`
}

func partOf(p Part) *part {
	if p == (Part{}) {
		return nil
	}
	return &part{p.Name, p.Default}
}

func (p *part) part() Part {
	if p == nil {
		return Part{}
	}
	return Part{p.Name, p.Default}
}

func (q Quota) value() value {
	return value{partOf(q.Entity.User), partOf(q.Entity.ClientID), partOf(q.Entity.IP), q.Limits}
}

func encode(q Quota) []byte {
	raw, err := json.Marshal(q.value())
	if err != nil {
		panic(fmt.Sprintf("the quota %+v: %v", q, err)) // strings and finite numbers always encode
	}
	return raw
}

// keyOf returns the key of an entity's quota.
func keyOf(e Entity) string {
	return fmt.Sprintf("%s%x", statePrefix, sha256.Sum256(encode(Quota{Entity: e})))
}

// decode refuses fields that it does not know, and what Check and CheckLimit refuse.
func decode(key string, raw []byte) (Quota, error) {
	var v value
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return Quota{}, err
	}
	q := Quota{Entity{v.User.part(), v.ClientID.part(), v.IP.part()}, v.Limits}
	if keyOf(q.Entity) != key {
		return Quota{}, errors.New("its key is that of another entity")
	}
	err := q.Entity.Check()
	for k, limit := range q.Limits {
		err = errors.Join(err, q.Entity.CheckLimit(k, limit))
	}
	return q, err
}
