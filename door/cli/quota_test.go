package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/weir-log/weir/use/quota"
)

func TestQuotasAreManaged(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	quotas := func(args ...string) result { return weir(t, "", append(append([]string{"quota"}, args...), at...)...) }
	listed := func(args ...string) []quotaRow {
		t.Helper()
		var rows []quotaRow
		if out := quotas(append([]string{"list", "--output", "json"}, args...)...); json.Unmarshal([]byte(out.out), &rows) != nil {
			t.Fatalf("listed is %s %s", out.out, out.err)
		}
		return rows
	}
	quotas("list").want(t, exitConfig, "does not exist")
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)

	quotas("alter", "--user", "alice", "--producer-byte-rate", "1MiB", "--request-percentage", "0.5", "--controller-mutation-rate", "2.5").want(t, exitOK, "alice", "producer_byte_rate=1048576", "request_percentage=0.5", "controller_mutation_rate=2.5")
	quotas("alter", "--user", "alice", "--consumer-byte-rate", "2KiB").want(t, exitOK, "producer_byte_rate=1048576 consumer_byte_rate=2048")
	quotas("alter", "--default-user", "--client-id", "nightly", "--consumer-byte-rate", "1KB").want(t, exitOK, "<default>", "nightly", "consumer_byte_rate=1000")
	quotas("alter", "--user", "alice", "--default-client-id", "--consumer-byte-rate", "1KB").want(t, exitOK)
	quotas("alter", "--ip", "::ffff:10.0.0.1", "--connection-creation-rate", "5").want(t, exitOK, "10.0.0.1", "connection_creation_rate=5")
	if all, alice, ip, byDefault := listed(), listed("--user", "alice"), listed("--ip", "10.0.0.1"), listed("--default-user"); len(all) != 4 || len(alice) != 2 || len(ip) != 1 || len(byDefault) != 1 {
		t.Errorf("listed are %v, of alice %v, of the address %v, of other users %v", all, alice, ip, byDefault)
	}
	for want, args := range map[string][]string{
		"none of --user":               {"--producer-byte-rate", "1MiB"},
		"no quota is given":            {"--user", "alice"},
		"cannot be combined":           {"--user", "alice", "--ip", "10.0.0.1", "--connection-creation-rate", "1"},
		"is not an IP address":         {"--ip", "db.internal", "--connection-creation-rate", "1"},
		"connection_creation_rate":     {"--user", "alice", "--connection-creation-rate", "1"},
		"must be greater than 0":       {"--user", "alice", "--producer-byte-rate", "0B"},
		"can't be used together":       {"--user", "alice", "--default-user", "--producer-byte-rate", "1MiB"},
		"characters that cannot be pr": {"--client-id", "a\x00", "--producer-byte-rate", "1MiB"},
	} {
		quotas(append([]string{"alter"}, args...)...).want(t, exitUsage, want)
	}
	quotas("delete", "--user", "alice").want(t, exitUsage, "--yes")
	quotas("delete", "--yes").want(t, exitUsage, "none of --user")
	quotas("delete", "--user", "alice", "--quota", "speed", "--yes").want(t, exitUsage, `"speed" is unknown`)
	quotas("delete", "--user", "bob", "--yes").want(t, exitFailed, "no such quota")
	quotas("delete", "--user", "alice", "--quota", "producer_byte_rate", "--yes").want(t, exitOK, "consumer_byte_rate=2048")
	if alice := listed("--user", "alice"); len(alice) != 2 || alice[0].ClientID != nil || len(alice[0].Limits) != 3 || alice[0].Limits[quota.RequestPercentage] != 0.5 {
		t.Errorf("left of alice are %+v", alice)
	}
	quotas("delete", "--user", "alice", "--yes").want(t, exitOK)
	if all := listed(); len(all) != 3 {
		t.Errorf("left are %+v", all)
	}
	quotas("delete", "--damaged", "--yes").want(t, exitOK, "removed 0")
}
