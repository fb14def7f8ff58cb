package acl

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// As for users (use/user/lookup.go).
const (
	freshFor = 2 * time.Second  // how old the rules may be by which a request is judged
	patience = 5 * time.Second  // the same for a caller that does not wait while another caller reads newer ones
	staleMax = 10 * time.Minute // how long the last rules are used while the store is unavailable
	askMax   = 2 * time.Second  // bounds the wait for the store
)

// Set is all rules at a moment. It never changes.
type Set struct {
	byPrincipal map[string][]Binding
	nothing     bool // nobody may do anything: a rule that may forbid cannot be read
}

// Of returns the rules about a principal's clients that connect from an address.
func (s *Set) Of(principal, host string) Rules {
	if s.nothing {
		return nil
	}
	var rules Rules
	for _, whom := range []string{principal, Everybody} {
		for _, b := range s.byPrincipal[whom] {
			if b.Host == Everywhere || b.Host == host {
				rules = append(rules, b.Rule)
			}
		}
	}
	return rules
}

// known is what this process knows of the rules. It is never changed, only replaced.
type known struct {
	*Set
	at    time.Time // when the store was read
	tried time.Time // when reading the store was last tried
	err   error     // of the last try
}

// Current returns the rules, at most freshFor old. eventlog.ErrUnavailable: the store is unavailable, and the last known rules are older than staleMax.
//
// However many callers there are, they cost one store call every freshFor, for which one caller waits.
func (a *ACLs) Current(ctx context.Context) (*Set, error) {
	k := a.last.Load()
	if time.Since(k.tried) < freshFor {
		return k.usable()
	}
	if !a.asking.TryLock() {
		if time.Since(k.at) < patience || k.err != nil {
			return k.usable()
		}
		a.asking.Lock() // for askMax at most
	}
	defer a.asking.Unlock()
	if k = a.last.Load(); time.Since(k.tried) >= freshFor { // no other caller read them meanwhile
		k = a.ask(ctx, k)
		a.last.Store(k)
	}
	return k.usable()
}

// ask reads the rules. If the store does not answer, the old rules stay.
func (a *ACLs) ask(ctx context.Context, old *known) *known {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askMax)
	defer cancel()
	all, err := a.read(ctx)
	now := time.Now()
	if err != nil {
		if old.err == nil {
			a.logger.Warn("ACLs cannot be read; the last known ACLs are used", "error", err, "for", staleMax)
		}
		return &known{Set: old.Set, at: old.at, tried: now, err: err}
	}
	set := &Set{byPrincipal: make(map[string][]Binding), nothing: all.mayForbid()}
	if set.nothing {
		a.logger.Error("an ACL that may forbid something cannot be read: until it is deleted, users other than super users may do nothing")
	}
	for _, h := range all.rules {
		set.byPrincipal[h.Principal] = append(set.byPrincipal[h.Principal], h.Binding)
	}
	return &known{Set: set, at: now, tried: now}
}

func (k *known) usable() (*Set, error) {
	if since := time.Since(k.at); k.err != nil && since > staleMax {
		return nil, fmt.Errorf("%w: ACLs cannot be read: %w", eventlog.ErrUnavailable, k.err)
	}
	return k.Set, nil
}
