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
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
)

const statePrefix = "quota/"

// Store is the part of eventlog.Store that quotas need.
type Store interface {
	Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error)
	List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error)
}

// Quotas are the quotas in a store. Methods may be called concurrently.
type Quotas struct {
	store  Store
	logger *slog.Logger

	last   *recent.Value[*set]
	logged atomic.Int64 // number of damaged quotas that were logged last
}

// New returns the quotas in a store. Quotas that cannot be read are logged, and bound nobody.
func New(store Store, logger *slog.Logger) *Quotas {
	q := &Quotas{store: store, logger: logger}
	q.last = recent.New("quotas", nil, q.readSet, logger)
	return q
}

// List reads the quotas that a filter finds from the store, in order.
func (q *Quotas) List(ctx context.Context, f Filter) ([]Quota, error) {
	all, err := q.read(ctx)
	if err != nil {
		return nil, err
	}
	found := []Quota{}
	for _, h := range all.quotas {
		if f.Finds(h.Entity) {
			found = append(found, h.Quota)
		}
	}
	slices.SortFunc(found, func(a, b Quota) int { return a.Entity.Compare(b.Entity) })
	return found, nil
}

// Find reads what one entity may use from the store; it has no limits if there are none.
func (q *Quotas) Find(ctx context.Context, e Entity) (Quota, error) {
	all, err := q.read(ctx)
	if err != nil {
		return Quota{}, err
	}
	if h, ok := all.quotas[keyOf(e)]; ok {
		return h.Quota, nil
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
// an error, or nil, for each. It costs two store calls. Servers know of a change within freshFor.
//
// eventlog.ErrUnsure: the change may have been made. eventlog.ErrStale: another caller changed the
// same entity meanwhile, and nothing was done.
func (q *Quotas) Change(ctx context.Context, changes []Change) []error {
	errs, flush, of := q.prepare(ctx, changes)
	if len(flush) == 0 {
		return errs
	}
	outcomes, err := q.commit(ctx, flush)
	for at, i := range of {
		one := err
		if one == nil {
			one = outcomes[at].Err
		}
		errs[i] = explain(changes[i], one)
	}
	return errs
}

// Try returns what Change would return for each change, as far as it can be known without making
// it.
func (q *Quotas) Try(ctx context.Context, changes []Change) []error {
	errs, _, _ := q.prepare(ctx, changes)
	return errs
}

func explain(c Change, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("change the quotas of %s: %w", c.Entity.short(), err)
}

// prepare returns an error for each change that cannot be made, and the entries that make the
// others; of has the change of each entry.
func (q *Quotas) prepare(ctx context.Context, changes []Change) (errs []error, flush []eventlog.Entry, of []int) {
	errs = make([]error, len(changes))
	all, err := q.read(ctx)
	if err != nil {
		for i, c := range changes {
			errs[i] = explain(c, err)
		}
		return errs, nil, nil
	}
	count := len(all.quotas) + len(all.damaged)
	for i, c := range changes {
		key := keyOf(c.Entity)
		old := all.quotas[key]
		entry, err := c.entry(key, old)
		if _, damaged := all.damaged[key]; damaged && err == nil {
			err = ErrDamaged
		}
		if err == nil && entry != nil && old.version == 0 {
			if count++; count > entitiesMax {
				err = fmt.Errorf("%w: there are those of %d entities, the limit; remove some, or use defaults", ErrTooMany, entitiesMax)
			}
		}
		if errs[i] = explain(c, err); err == nil && entry != nil {
			flush, of = append(flush, *entry), append(of, i)
		}
	}
	return errs, flush, of
}

// entry returns the entry that makes a change; nil if it changes nothing.
func (c Change) entry(key string, old held) (*eventlog.Entry, error) {
	if err := c.Entity.Check(); err != nil {
		return nil, err
	}
	if c.Clear && old.version == 0 {
		return nil, ErrUnknown
	}
	next := maps.Clone(old.Limits)
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
	put := eventlog.Put{Key: key} // deletes
	switch {
	case maps.Equal(next, old.Limits), len(next) == 0 && old.version == 0:
		return nil, nil
	case len(next) > 0:
		put = eventlog.Put{Key: key, Version: old.version + 1, Value: encode(Quota{c.Entity, next})}
	}
	return &eventlog.Entry{Checks: []eventlog.Check{{Key: key, Version: old.version}}, Puts: []eventlog.Put{put}}, nil
}

// DeleteDamaged deletes the quotas that cannot be read, and returns how many.
func (q *Quotas) DeleteDamaged(ctx context.Context) (int, error) {
	all, err := q.read(ctx)
	if err != nil || len(all.damaged) == 0 {
		return 0, err
	}
	var flush []eventlog.Entry
	for key, version := range all.damaged {
		flush = append(flush, eventlog.Entry{Checks: []eventlog.Check{{Key: key, Version: version}}, Puts: []eventlog.Put{{Key: key}}})
	}
	outcomes, err := q.commit(ctx, flush)
	if err != nil {
		return 0, fmt.Errorf("delete quotas that cannot be read: %w", err)
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

// commit writes a flush. This process then reads the store again before it enforces.
func (q *Quotas) commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	outcomes, err := q.store.Commit(ctx, flush)
	q.last.Expire()
	return outcomes, err
}

// stored is what the store has, by key.
type stored struct {
	quotas  map[string]held
	damaged map[string]eventlog.Version // they cannot be read
}

type held struct {
	Quota
	version eventlog.Version
}

// read reads all quotas from the store: one store call, and one more for each entitiesMax by which
// callers of Change that did not know of each other have exceeded it.
func (q *Quotas) read(ctx context.Context) (*stored, error) {
	kvs, err := eventlog.AllUnder(ctx, q.store.List, statePrefix, entitiesMax+1)
	if err != nil {
		return nil, fmt.Errorf("list quotas: %w", err)
	}
	all := &stored{quotas: make(map[string]held, len(kvs)), damaged: make(map[string]eventlog.Version)}
	for _, kv := range kvs {
		one, err := decode(kv.Key, kv.Value)
		if err != nil {
			all.damaged[kv.Key] = kv.Version
			continue
		}
		all.quotas[kv.Key] = held{one, kv.Version}
	}
	if n := int64(len(all.damaged)); q.logged.Swap(n) != n && n > 0 { // quotas are read often: this is logged once
		q.logger.Error("quotas cannot be read, so they bound nobody; `weir quota delete --damaged` removes them", "number", n)
	}
	return all, nil
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

func encode(q Quota) []byte {
	raw, err := json.Marshal(value{partOf(q.Entity.User), partOf(q.Entity.ClientID), partOf(q.Entity.IP), q.Limits})
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
