package acl_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

func TestRightsFollowTheStoredRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, quiet := memory.New(), slog.New(slog.DiscardHandler)
		acls, others := acl.New(everystore.Direct(store), quiet), acl.New(everystore.Direct(store), quiet)
		rights := acl.RightsOf("User:alice", "192.0.2.7:1234", false)
		now := func() *acl.Rights {
			t.Helper()
			next, err := rights.Now(t.Context(), acls)
			if err != nil {
				t.Fatal(err)
			}
			return next
		}
		read := acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Read}
		if rights.May(acl.Read, acl.Topic, "orders") || now().May(acl.Read, acl.Topic, "orders") || now().Everything() {
			t.Error("a user may something without a rule")
		}
		if rights = now(); now() != rights {
			t.Error("rights that did not change are others")
		}
		for _, err := range others.Create(t.Context(), []acl.Binding{{Principal: "User:alice", Host: "192.0.2.7", Rule: read}, {Principal: "User:bob", Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Write}}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		later := now()
		if !later.May(acl.Read, acl.Topic, "orders") || !later.MayAny(acl.Read, acl.Topic) || later.May(acl.Write, acl.Topic, "orders") || later.MayCreate("orders") {
			t.Errorf("after 2 s the user may %+v", later)
		}
		if rights.May(acl.Read, acl.Topic, "orders") {
			t.Error("rights have changed that were given out")
		}
		if elsewhere, err := acl.RightsOf("User:alice", "192.0.2.8:1234", false).Now(t.Context(), acls); err != nil || elsewhere.May(acl.Read, acl.Topic, "orders") {
			t.Errorf("from another host: %+v, %v", elsewhere, err)
		}
	})
}

func TestRightsOfSuperUsersAndKeysDoNotComeFromTheStore(t *testing.T) {
	acls := acl.New(everystore.Direct(memory.New()), slog.New(slog.DiscardHandler))
	super := acl.RightsOf("User:admin", "192.0.2.7:1234", true)
	carried := acl.RightsBy(acl.Rules{{Kind: acl.Topic, Name: "orders", Operation: acl.Create}})
	for _, err := range acls.Create(t.Context(), []acl.Binding{{Principal: acl.Everybody, Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: "*", Operation: acl.All, Deny: true}}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*acl.Rights{"a super user": super, "a key": carried} {
		now, err := r.Now(t.Context(), acls)
		if err != nil || !now.MayCreate("orders") || now.MayCreate("users") != now.Everything() {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
	var none *acl.Rights
	if none.Everything() || none.May(acl.Read, acl.Topic, "orders") || none.MayAny(acl.Read, acl.Topic) || none.MayCreate("orders") {
		t.Error("no rights allow something")
	}
}

func TestHostOfAnAddress(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.7:1": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7", "[fe80::1%eth0]:1": "fe80::1", "[2001:DB8::1]:1": "2001:db8::1", "pipe": "pipe"} {
		if got := acl.HostAt(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestNobodyIsEverybody(t *testing.T) {
	if p, err := acl.PrincipalOf("alice"); err != nil || p != "User:alice" {
		t.Errorf("%s, %v", p, err)
	}
	for _, name := range []string{"", "*", "a\x00b", string(make([]byte, 64<<10))} {
		if p, err := acl.PrincipalOf(name); err == nil {
			t.Errorf("%.20q is the principal %.20q", name, p)
		}
	}
}
