package acl

import (
	"context"
	"time"

	"github.com/weir-log/weir/use/table"
)

// freshFor is how old the rules may be by which a request is judged.
const freshFor = 2 * time.Second

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

// Current returns the rules, at most freshFor old. eventlog.ErrUnavailable: the store is
// unavailable, and the rules were last read more than recent.StaleMax ago.
func (a *ACLs) Current(ctx context.Context) (*Set, error) {
	last, err := a.table.Recent(ctx, freshFor)
	if err != nil {
		return nil, err
	}
	return last.Value, nil
}

// set returns all rules as requests are judged by them.
func (a *ACLs) set(all table.Rows[Binding]) *Set {
	s := &Set{byPrincipal: make(map[string][]Binding), nothing: mayForbid(all)}
	if s.nothing {
		a.logger.Error("an ACL that may forbid something cannot be read: until it is deleted, users other than super users may do nothing")
	}
	for _, r := range all {
		if r.Err == nil {
			s.byPrincipal[r.Value.Principal] = append(s.byPrincipal[r.Value.Principal], r.Value)
		}
	}
	return s
}
