package tour

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

// The page's blocks are run in their order, with the certificates of the page to which it leads.
// systemd and the names of machines are others. The database has another authority.
func TestAQueueGoesIntoProductionAsThePageSays(t *testing.T) {
	const page = "../../docs/queue-production.md"
	server, authority := encrypted(t)
	sql(t, server.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'PASSWORD' CREATEROLE`, `CREATE ROLE shop LOGIN PASSWORD 'secret'`, `CREATE DATABASE shop`, `CREATE DATABASE restored`)
	sql(t, as(t, server, "postgres", "shop"), `CREATE SCHEMA weir AUTHORIZATION weir`)
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	sh := startShell(t, nil)
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(sh.dir, "weir.log")); t.Failed() && err == nil {
			t.Logf("--- weir.log\n%s", text)
		}
	})
	sh.has("openssl", "pg_dump", "pg_restore")
	there := strings.NewReplacer(
		"/etc/default/weir", sh.dir+"/settings", "sslrootcert=/etc/weir/ca.crt", "sslrootcert="+sh.dir+"/etc/db.crt", "/etc/weir", sh.dir+"/etc",
		"postgres://postgres@db.example.org/shop", as(t, server, "postgres", "shop"), "postgres://postgres@db.example.org/restored", as(t, server, "postgres", "restored"),
		"@db.example.org/", "@"+byName(t, server)+"/", "0.0.0.0:8080", addresses[0], "weir-1.example.org:8080", addresses[0], "DNS:$host", "IP:127.0.0.1",
		"systemctl enable weir && systemctl restart weir", startWeir)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(sh.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := func(commands string) string { return sh.must("set -e\n" + there.Replace(commands) + "\nset +e") }

	for _, f := range fencesOf(t, kafkaPage, "## 2. Certificates") {
		all(f.text)
	}
	write("db.crt", string(authority))
	sh.must("mkdir etc && cp weir.crt weir.key ca.crt db.crt etc")

	var blocks []string
	for _, f := range fences(t, page) {
		if f.kind == "sh" {
			blocks = append(blocks, f.text)
		}
	}
	if len(blocks) != 5 {
		t.Fatalf("%s has %d blocks of sh: its settings, a start, a key, a worker's settings, and a dump are 5", page, len(blocks))
	}
	write("settings", there.Replace(blocks[0]))
	all(blocks[1])
	pgtest.Exec(t, as(t, server, "shop", "shop"), `SELECT weir.enqueue('mail', 'hello')`)
	secret := regexp.MustCompile(`weir_\w+`).FindString(all(blocks[2]))
	claimed := sh.must("(" + strings.ReplaceAll(there.Replace(blocks[3]), "…", secret) + `
		curl -sSf --cacert "$WEIR_TLS_CA" -H "Authorization: Bearer $WEIR_API_KEY" -H 'Content-Type: application/json' -d '{"max": 1, "wait_ms": 60000}' $WEIR_SERVER/v1/queues/mail/claim)`)
	if !strings.Contains(claimed, `"value":"hello"`) {
		t.Errorf("the worker claims %s", claimed)
	}

	dump, restore, _ := strings.Cut(blocks[4], "\n")
	all(dump)
	sh.must(stopWeir)
	all(restore)
	sh.must(`WEIR_STORE="${WEIR_STORE/\/shop\?/\/restored?}"`)
	sh.must(startWeir)
	sh.must(strings.Replace(isReady, "curl", `curl --cacert "$WEIR_TLS_CA"`, 1))
	sh.must("weir queue describe mail") // with the key that the dump has
}
