package acl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

func aclsOf(store eventlog.Store) *acl.ACLs {
	return acl.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
}

var everything = acl.Filter{Kind: acl.Any, Pattern: acl.AnyPattern, Operation: acl.Any, Effect: acl.Any}

func read(name string) acl.Binding {
	return acl.Binding{Principal: "User:alice", Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: name, Operation: acl.Read}}
}

func TestNumberOfACLsIsBounded(t *testing.T) {
	acls := aclsOf(memory.New())
	var many []acl.Binding
	for i := range 1001 {
		many = append(many, read(fmt.Sprint("t", i)))
	}
	errs := acls.Create(t.Context(), many)
	if errs[999] != nil || !errors.Is(errs[1000], acl.ErrTooMany) {
		t.Errorf("the 1000th: %v, one more: %v", errs[999], errs[1000])
	}
	if err := acls.Create(t.Context(), many[:1])[0]; err != nil {
		t.Errorf("one that exists: %v", err)
	}
}

// A rule that cannot be read and may forbid something forbids everything; one that allows is
// ignored.
func TestDamagedDenyForbidsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		acls := aclsOf(store)
		if err := acls.Create(t.Context(), []acl.Binding{read("t")})[0]; err != nil {
			t.Fatal(err)
		}
		may := func(want bool) {
			t.Helper()
			time.Sleep(2 * time.Second)
			set, err := acls.Current(t.Context())
			if err != nil || set.Of("User:alice", "10.0.0.1").May(acl.Read, acl.Topic, "t") != want {
				t.Errorf("want %v: %v", want, err)
			}
		}
		put := func(key string) {
			t.Helper()
			if _, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(`{"newer":1}`)}}}}); err != nil {
				t.Fatal(err)
			}
		}
		may(true)
		put("acl/allow/x")
		may(true)
		put("acl/deny/x")
		may(false)
		if n, err := acls.DeleteDamaged(t.Context()); n != 2 || err != nil {
			t.Errorf("%d deleted: %v", n, err)
		}
		may(true)
	})
}

// away is a store that does not answer.
type away struct {
	eventlog.Store
	is bool
}

func (a *away) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if a.is {
		return nil, eventlog.ErrUnavailable
	}
	return a.Store.List(ctx, prefix, after, limit)
}

func TestKnownACLsAreUsedWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &away{Store: memory.New(), is: true}
		acls := aclsOf(store)
		if _, err := acls.Current(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("before anything is known: %v", err)
		}
		time.Sleep(3 * time.Second)
		store.is = false
		if _, err := acls.Current(t.Context()); err != nil {
			t.Error(err)
		}
		store.is = true
		time.Sleep(9 * time.Minute)
		if _, err := acls.Current(t.Context()); err != nil {
			t.Errorf("after nine minutes: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := acls.Current(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("after eleven minutes: %v", err)
		}
	})
}

// naive is Kafka's rule read aloud: some allow, no deny.
func naive(all []acl.Binding, user, host string, op acl.Operation, kind acl.Kind, name string) bool {
	about := func(b acl.Binding) bool {
		whom := b.Principal == "User:*" || b.Principal == user
		where := b.Host == "*" || b.Host == host
		what := b.Name == name || b.Name == "*"
		if b.Prefixed {
			what = len(b.Name) <= len(name) && name[:len(b.Name)] == b.Name
		}
		return whom && where && what && b.Kind == kind
	}
	implying := map[acl.Operation]string{acl.Describe: " READ WRITE DELETE ALTER ", acl.DescribeConfigs: " ALTER_CONFIGS "}
	allowed := false
	for _, b := range all {
		if !about(b) {
			continue
		}
		exact := b.Operation == op || b.Operation == acl.All
		if b.Deny && exact {
			return false
		}
		if !b.Deny && (exact || strings.Contains(implying[op], " "+b.Operation.String()+" ")) {
			allowed = true
		}
	}
	return allowed
}

func TestStoredRulesJudgeLikeANaiveModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := seed.Random(t)
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		kind := func() acl.Kind { return []acl.Kind{acl.Topic, acl.Group}[random.IntN(2)] }
		op := func() acl.Operation { return acl.All + acl.Operation(random.IntN(11)) }
		for range 100 {
			acls, all := aclsOf(memory.New()), []acl.Binding(nil)
			for range random.IntN(12) {
				all = append(all, acl.Binding{
					Principal: pick("User:a", "User:b", "User:*"), Host: pick("*", "10.0.0.1", "::1"),
					Rule: acl.Rule{Kind: kind(), Name: pick("*", "t", "tt", "ttt", "u"), Prefixed: random.IntN(2) == 0, Operation: op(), Deny: random.IntN(4) == 0},
				})
			}
			for i, err := range acls.Create(t.Context(), all) {
				if err != nil {
					t.Fatal(all[i], err)
				}
			}
			if len(all) > 0 && random.IntN(2) == 0 { // delete some
				f := filter(random, all)
				left := []acl.Binding(nil)
				for _, b := range all {
					if !f.Finds(b) {
						left = append(left, b)
					}
				}
				if d := acls.Delete(t.Context(), []acl.Filter{f})[0]; d.Err != nil || len(d.Rules) == 0 {
					t.Fatal(d)
				}
				all = left
			}
			set, err := acls.Current(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 50 {
				user, host, o, k, name := pick("User:a", "User:b", "User:c"), pick("10.0.0.1", "::1", "10.0.0.2"), op()+1, kind(), pick("t", "tt", "tttt", "u", "x", "*t")
				if o > acl.IdempotentWrite {
					continue
				}
				if got, want := set.Of(user, host).May(o, k, name), naive(all, user, host, o, k, name); got != want {
					t.Fatalf("%s from %s, %s on %s %s: %v, want %v by %+v", user, host, o, k, name, got, want, all)
				}
			}
		}
	})
}

// filter returns one that finds at least one of the rules.
func filter(random *rand.Rand, all []acl.Binding) acl.Filter {
	b, f := all[random.IntN(len(all))], everything
	if random.IntN(2) == 0 {
		f.Principal = &b.Principal
	}
	if random.IntN(2) == 0 {
		f.Kind, f.Name = b.Kind, &b.Name
	}
	if random.IntN(2) == 0 {
		f.Operation, f.Effect = b.Operation, b.Effect()
	}
	return f
}

// KIP-290: what each pattern of a filter finds.
func TestFiltersFindWhatKafkaFinds(t *testing.T) {
	rules := map[string]acl.Binding{"literal": read("ab"), "other": read("abc"), "all": read("*"), "prefix": read("a"), "same": read("ab")}
	for _, name := range []string{"prefix", "same"} {
		b := rules[name]
		b.Prefixed = true
		rules[name] = b
	}
	name := "ab"
	for pattern, want := range map[acl.Pattern]string{
		acl.AnyPattern: " literal same ", acl.Match: " literal all prefix same ", acl.Literal: " literal ", acl.Prefixed: " same ",
	} {
		f := everything
		f.Name, f.Pattern = &name, pattern
		for which, b := range rules {
			if f.Finds(b) != strings.Contains(want, " "+which+" ") {
				t.Errorf("pattern %d: %s is found: %v", pattern, which, f.Finds(b))
			}
		}
	}
}
