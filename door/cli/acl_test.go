package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestACLsAreManaged(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	acl := func(args ...string) result { return weir(t, "", append(append([]string{"acl"}, args...), at...)...) }
	listed := func(args ...string) []aclRow {
		t.Helper()
		var rows []aclRow
		if out := acl(append([]string{"list", "--output", "json"}, args...)...); json.Unmarshal([]byte(out.out), &rows) != nil {
			t.Fatalf("listed is %s %s", out.out, out.err)
		}
		return slices.DeleteFunc(rows, func(r aclRow) bool { return r.APIKey != "" })
	}
	acl("list").want(t, exitConfig, "does not exist")
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)

	acl("create", "--principal", "User:alice", "--allow", "--operation", "read", "--topic", "orders", "--group", "billing").want(t, exitOK, "User:alice", "allow", "read", "orders", "billing", "literal")
	acl("create", "--principal", "User:alice", "--allow", "--operation", "write", "--operation", "describe-configs", "--topic", "orders.", "--prefixed").want(t, exitOK, "prefixed", "describe_configs")
	acl("create", "--principal", "User:*", "--deny", "--operation", "all", "--cluster", "--host", "::ffff:10.0.0.1").want(t, exitOK, "deny", "10.0.0.1", "kafka-cluster")
	if all, alice, topic := listed(), listed("--principal", "User:alice"), listed("--topic", "orders"); len(all) != 5 || len(alice) != 4 || len(topic) != 1 { // orders. is no beginning of orders
		t.Errorf("listed are %v, of alice %v, of the topic %v", all, alice, topic)
	}
	for want, args := range map[string][]string{
		"--principal is missing":        {"--allow", "--operation", "read", "--topic", "t"},
		"must be User:NAME":             {"--principal", "alice", "--allow", "--operation", "read", "--topic", "t"},
		"neither --allow nor --deny":    {"--principal", "User:alice", "--operation", "read", "--topic", "t"},
		"--operation is missing":        {"--principal", "User:alice", "--allow", "--topic", "t"},
		"\"reed\" is unknown":           {"--principal", "User:alice", "--allow", "--operation", "reed", "--topic", "t"},
		"none of --topic, --group and ": {"--principal", "User:alice", "--allow", "--operation", "read"},
		"must be an IP address":         {"--principal", "User:alice", "--allow", "--operation", "read", "--topic", "t", "--host", "db.internal"},
		"--prefixed is for names":       {"--principal", "User:alice", "--allow", "--operation", "read", "--cluster", "--prefixed"},
	} {
		acl(append([]string{"create"}, args...)...).want(t, exitUsage, want)
	}
	acl("delete", "--principal", "User:alice").want(t, exitUsage, "--yes")
	acl("delete", "--yes").want(t, exitUsage, "nothing was removed")
	acl("delete", "--topic", "orders", "--yes").want(t, exitOK, "orders", "literal")
	if all := listed(); len(all) != 4 {
		t.Errorf("left are %v", all)
	}
	acl("delete", "--principal", "User:alice", "--yes").want(t, exitOK, "billing")
	if all := listed(); len(all) != 1 || all[0].Host != "10.0.0.1" {
		t.Errorf("left are %v", all)
	}
	acl("delete", "--damaged", "--yes").want(t, exitOK, "removed 0")
}

// The rights of API keys are shown beside ACLs. They are the same rules, and no ACL changes them.
func TestRulesOfAPIKeysAreListed(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	acl := func(args ...string) result { return weir(t, "", append(append([]string{"acl"}, args...), at...)...) }
	create := func(args ...string) (id string) {
		t.Helper()
		var made struct{ ID string }
		r := weir(t, "", append(append([]string{"key", "create", "--output", "json"}, args...), at...)...)
		if err := json.Unmarshal([]byte(r.out), &made); err != nil || made.ID == "" {
			t.Fatalf("%+v: %v", r, err)
		}
		return made.ID
	}
	listed := func(args ...string) []aclRow {
		t.Helper()
		var rows []aclRow
		if out := acl(append([]string{"list", "--output", "json"}, args...)...); json.Unmarshal([]byte(out.out), &rows) != nil {
			t.Fatalf("listed is %s %s", out.out, out.err)
		}
		return rows
	}
	shop := create("shop", "--access", "write", "--topic", "orders.", "--topic", "mails.")
	reader := create("shop", "--access", "read", "--topic", "orders.")
	revoked := create("gone", "--access", "admin", "--all-topics", "--all-groups")
	ops := create("ops", "--access", "read", "--all-topics", "--all-groups")
	create("worker", "--access", "read", "--queue", "mail")
	one := create("one", "--access", "write", "--topic-name", "orders")
	weir(t, "", append([]string{"key", "delete", revoked, "--yes"}, at...)...).want(t, exitOK)
	acl("create", "--principal", "User:alice", "--allow", "--operation", "write", "--topic", "orders.eu").want(t, exitOK)

	row := func(principal, operation, kind, name string, prefixed bool, key string) aclRow {
		return aclRow{principal, "allow", operation, kind, name, prefixed, "*", key}
	}
	want := []aclRow{row("User:alice", "write", "topic", "orders.eu", false, "")}
	ofKeys := []aclRow{
		row("User:ops", "read", "topic", "*", false, ops), row("User:ops", "describe_configs", "topic", "*", false, ops),
		row("User:shop", "write", "topic", "mails.", true, shop), row("User:one", "write", "topic", "orders", false, one),
		row("User:shop", "read", "topic", "orders.", true, reader), row("User:shop", "write", "topic", "orders.", true, shop), row("User:shop", "describe_configs", "topic", "orders.", true, reader),
		{"User:ops", "deny", "all", "topic", "weir.audit", false, "*", ops}, // it is no administrator's
		row("User:ops", "read", "group", "*", false, ops), row("User:ops", "describe_configs", "group", "*", false, ops),
		row("User:shop", "read", "group", "orders.", true, reader), row("User:shop", "describe_configs", "group", "orders.", true, reader),
		row("User:ops", "describe", "cluster", "kafka-cluster", false, ops), row("User:ops", "describe_configs", "cluster", "kafka-cluster", false, ops),
	}
	if got := listed(); !slices.Equal(got, append(want, ofKeys...)) {
		t.Errorf("listed are\n%v, want\n%v", got, append(want, ofKeys...))
	}
	if got := listed("--principal", "User:shop", "--operation", "write"); len(got) != 2 || got[0].Name != "mails." || got[1].APIKey != shop {
		t.Errorf("what shop may write is %v", got)
	}
	acl("list", "--topic", "mails.", "--pattern", "prefixed").want(t, exitOK, "FROM", "key "+shop)
	acl("delete", "--principal", "User:shop", "--yes").want(t, exitOK, "6 rules from API keys stay")
	if got := listed("--principal", "User:shop"); len(got) != 6 {
		t.Errorf("left of shop are %v", got)
	}
	acl("create", "--principal", "User:shop", "--deny", "--operation", "all", "--topic", "orders.eu").want(t, exitOK, "do not change what the key may do", shop)
	if r := acl("create", "--principal", "User:gone", "--deny", "--operation", "all", "--topic", "orders.eu"); strings.Contains(r.err, "API key") {
		t.Errorf("about a revoked key weir says %s", r.err)
	}
}

// Who may do something to a topic is decided by rules about it, about beginnings of its name, and
// about every topic.
func TestACLsThatConcernATopicAreListed(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	acl := func(args ...string) result { return weir(t, "", append(append([]string{"acl"}, args...), at...)...) }
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)
	for _, rule := range [][]string{
		{"--allow", "--topic", "orders.eu"}, {"--allow", "--topic", "orders.", "--prefixed"}, {"--deny", "--topic", "*"}, {"--allow", "--topic", "orders.us"},
		{"--allow", "--topic", "orders.eu", "--prefixed"}, {"--allow", "--topic", "bills.", "--prefixed"}, {"--allow", "--group", "orders.eu"},
	} {
		acl(append([]string{"create", "--principal", "User:alice", "--operation", "read"}, rule...)...).want(t, exitOK)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--topic", "orders.eu"}, "[* orders.… orders.eu orders.eu…]"},
		{[]string{"--topic", "orders.eu", "--pattern", "match", "--deny"}, "[*]"},
		{[]string{"--topic", "orders.eu", "--pattern", "any"}, "[orders.eu orders.eu…]"},
		{[]string{"--topic", "orders.eu", "--pattern", "literal"}, "[orders.eu]"},
		{[]string{"--topic", "orders.eu", "--pattern", "prefixed"}, "[orders.eu…]"},
		{[]string{"--topic", "orders.us", "--topic", "bills.eu"}, "[* bills.… orders.… orders.us]"},
		{[]string{"--pattern", "prefixed"}, "[bills.… orders.… orders.eu…]"},
		{[]string{"--topic", "mails"}, "[*]"},
	} {
		out := acl(append([]string{"list", "--output", "json"}, c.args...)...)
		var rows []aclRow
		if err := json.Unmarshal([]byte(out.out), &rows); err != nil {
			t.Fatalf("%v: %v, %s %s", c.args, err, out.out, out.err)
		}
		got := []string{}
		for _, r := range rows {
			if r.APIKey != "" {
				continue
			}
			if r.Prefixed {
				r.Name += "…"
			}
			got = append(got, r.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("weir acl list %v lists %v, want %s", c.args, got, c.want)
		}
	}
	acl("list", "--topic", "orders.eu", "--pattern", "nearly").want(t, exitUsage, "--pattern")
	acl("delete", "--topic", "orders.eu", "--yes").want(t, exitOK, "orders.eu", "literal") // what is removed is never more than what is named
	if out := acl("list", "--topic", "orders.eu"); !strings.Contains(out.out, "orders. ") || !strings.Contains(out.out, "*") {
		t.Errorf("left are %s", out.out)
	}
}
