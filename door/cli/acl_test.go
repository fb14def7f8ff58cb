package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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
		return rows
	}
	acl("list").want(t, exitConfig, "does not exist")
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)

	acl("add", "--principal", "User:alice", "--allow", "--operation", "read", "--topic", "orders", "--group", "billing").want(t, exitOK, "User:alice", "allow", "read", "orders", "billing", "literal")
	acl("add", "--principal", "User:alice", "--allow", "--operation", "write", "--operation", "describe-configs", "--topic", "orders.", "--prefixed").want(t, exitOK, "prefixed", "describe_configs")
	acl("add", "--principal", "User:*", "--deny", "--operation", "all", "--cluster", "--host", "::ffff:10.0.0.1").want(t, exitOK, "deny", "10.0.0.1", "kafka-cluster")
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
		acl(append([]string{"add"}, args...)...).want(t, exitUsage, want)
	}
	acl("remove", "--principal", "User:alice").want(t, exitUsage, "--yes")
	acl("remove", "--yes").want(t, exitUsage, "nothing was removed")
	acl("remove", "--topic", "orders", "--yes").want(t, exitOK, "orders", "literal")
	if all := listed(); len(all) != 4 {
		t.Errorf("left are %v", all)
	}
	acl("remove", "--principal", "User:alice", "--yes").want(t, exitOK, "billing")
	if all := listed(); len(all) != 1 || all[0].Host != "10.0.0.1" {
		t.Errorf("left are %v", all)
	}
	acl("remove", "--damaged", "--yes").want(t, exitOK, "removed 0")
}

// Who may do something to a topic is decided by rules about it, about beginnings of its name, and about every topic.
func TestACLsThatConcernATopicAreListed(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	acl := func(args ...string) result { return weir(t, "", append(append([]string{"acl"}, args...), at...)...) }
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)
	for _, rule := range [][]string{
		{"--allow", "--topic", "orders.eu"}, {"--allow", "--topic", "orders.", "--prefixed"}, {"--deny", "--topic", "*"}, {"--allow", "--topic", "orders.us"},
		{"--allow", "--topic", "orders.eu", "--prefixed"}, {"--allow", "--topic", "bills.", "--prefixed"}, {"--allow", "--group", "orders.eu"},
	} {
		acl(append([]string{"add", "--principal", "User:alice", "--operation", "read"}, rule...)...).want(t, exitOK)
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
	acl("remove", "--topic", "orders.eu", "--yes").want(t, exitOK, "orders.eu", "literal") // what is removed is never more than what is named
	if out := acl("list", "--topic", "orders.eu"); !strings.Contains(out.out, "orders. ") || !strings.Contains(out.out, "*") {
		t.Errorf("left are %s", out.out)
	}
}
