package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/use/user"
)

func TestUsersAreManaged(t *testing.T) {
	at := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	weir(t, "", append([]string{"user", "list"}, at...)...).want(t, exitConfig, "does not exist")
	weir(t, "", append([]string{"key", "create", "ops", "--access", "admin", "--all-topics", "--all-groups"}, at...)...).want(t, exitOK)

	weir(t, "right password\n", append([]string{"user", "create", "alice"}, at...)...).want(t, exitOK, "added user alice (SCRAM-SHA-256 with 8192 iterations, SCRAM-SHA-512 with 8192 iterations)")
	weir(t, "right password\n", append([]string{"user", "create", "alice"}, at...)...).want(t, exitFailed, "there is such a user")
	for _, password := range []string{"", "short", "pässword", "two\nlines", strings.Repeat("x", 2000)} {
		weir(t, password, append([]string{"user", "create", "bob"}, at...)...).want(t, exitUsage, "allowed")
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("other password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	weir(t, "", append([]string{"user", "alter", "alice", "--password-file", file, "--mechanism", "SCRAM-SHA-512", "--iterations", "4096"}, at...)...).want(t, exitOK)
	weir(t, "", append([]string{"user", "alter", "bob", "--password-file", file}, at...)...).want(t, exitFailed, "no such user")
	weir(t, "", append([]string{"user", "list"}, at...)...).want(t, exitOK, "NAME", "alice", "SCRAM-SHA-512 with 4096 iterations")
	listed := weir(t, "", append([]string{"user", "list", "--output", "json"}, at...)...)
	var rows []user.User
	if err := json.Unmarshal([]byte(listed.out), &rows); err != nil || len(rows) != 1 || len(rows[0].Iterations) != 1 {
		t.Errorf("listed are %s: %v", listed.out, err)
	}
	weir(t, "", append([]string{"user", "delete", "alice", "bob"}, at...)...).want(t, exitUsage, "--yes")
	weir(t, "", append([]string{"user", "delete", "alice", "bob", "--yes"}, at...)...).want(t, exitFailed, "deleted user alice", "no such user")
}

func TestSuperUsersAreChecked(t *testing.T) {
	for principal, says := range map[string]string{
		"admin": `is not "User:" and a name`, "User:": `is not "User:" and a name`, "User:a\x7f": "cannot be printed", "User:*": "names no user",
	} {
		if err := checkSuperUsers([]string{"User:admin", principal}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("--super-users %q: %v, want an error that says %q", principal, err, says)
		}
	}
	weir(t, "", "serve", "--super-users", "admin").want(t, exitUsage, "for the user admin, give User:admin")
}
