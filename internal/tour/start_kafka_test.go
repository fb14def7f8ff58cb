package tour

import (
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

const (
	eventsPage = "../../docs/start-events.md"
	kafkaPage  = "../../docs/start-kafka.md"
)

// fence is a block of a page.
type fence struct {
	line       int
	kind, text string
}

// fences returns all blocks of a page, in order.
func fences(t *testing.T, page string) []fence {
	t.Helper()
	return fencesOf(t, page, "")
}

// fencesOf returns the blocks of a section of a page; "": of all.
func fencesOf(t *testing.T, page, section string) (all []fence) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all = fencesIn(sectionOf(string(text), section))
	if len(all) == 0 {
		t.Fatalf("%s %s has no blocks", page, section)
	}
	return all
}

// fencesIn returns the blocks of a text, which may be indented.
func fencesIn(text string) (all []fence) {
	inside, indent := false, ""
	for i, line := range strings.Split(text, "\n") {
		kind, fenced := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case fenced && inside:
			inside = false
		case fenced:
			inside, indent = true, line[:strings.Index(line, "`")]
			all = append(all, fence{line: i + 1, kind: kind})
		case inside:
			all[len(all)-1].text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return all
}

func TestTheStartWithEventsShowsWhatHappens(t *testing.T) {
	replay(t, eventsPage, "bank")
}

func TestTheMoveToAnotherStoreShowsWhatHappens(t *testing.T) {
	replay(t, "../../docs/moving.md", "bank")
}

func TestTheStartWithEventsShowsTheExample(t *testing.T) {
	showsExample(t, eventsPage, "../../examples/bank/", map[string][]string{"go": {"main.go"}, "sql": {"balances.sql"}})
}

func TestTheStartWithEventsOnPostgresShowsTheExample(t *testing.T) {
	showsExample(t, "../../docs/start-events-postgres.md", "../../examples/accounts/",
		map[string][]string{"go": {"main.go", "accounts_test.go"}, "sql": {"roles.sql", "tables.sql"}})
}

func TestTheStreamsPageShowsTheLibrarysCalls(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	source := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source += string(text)
	}
	shown := 0
	for _, f := range fences(t, "../../docs/streams.md") {
		for line := range strings.Lines(f.text) {
			call, _, _ := strings.Cut(strings.TrimSpace(line), " // ")
			if !strings.HasPrefix(call, "func ") {
				continue
			}
			if shown++; !strings.Contains(source, call+" {") {
				t.Errorf("the library has no %s", call)
			}
		}
	}
	if shown < 10 {
		t.Errorf("the page shows %d calls", shown)
	}
}

func TestTheStreamsPageForgetsAPersonAsTheExampleDoes(t *testing.T) {
	source, err := os.ReadFile("../../example_stream_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, f := range fences(t, "../../docs/streams.md") {
		if !strings.Contains(f.text, "category.ForgetSubject") {
			continue
		}
		if shown++; !strings.Contains(string(source), f.text) {
			t.Errorf("ExampleCategory_ForgetSubject does not have\n%s", f.text)
		}
	}
	if shown != 1 {
		t.Errorf("the page forgets a person %d times, want once", shown)
	}
}

func TestTheStreamsPageReactsAsTheExampleDoes(t *testing.T) {
	source, err := os.ReadFile("../../examples/bank/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks(t, "../../docs/streams.md", "A transfer", "go") {
		if !strings.Contains(string(source), block+"\n") {
			t.Errorf("examples/bank does not have\n%s", block)
		}
	}
}

// showsExample compares a page's blocks, by kind, with the files that they are from.
func showsExample(t *testing.T, page, dir string, files map[string][]string) {
	t.Helper()
	for kind, names := range files {
		source := ""
		for _, name := range names {
			text, err := os.ReadFile(dir + name)
			if err != nil {
				t.Fatal(err)
			}
			source += string(text)
		}
		shown := 0
		for _, f := range fences(t, page) {
			if f.kind != kind {
				continue
			}
			if shown++; !strings.Contains(source, f.text) {
				t.Errorf("%s line %d: %v of %s do not have\n%s", page, f.line, names, dir, f.text)
			}
		}
		if shown == 0 {
			t.Errorf("%s shows nothing of %v of %s", page, names, dir)
		}
	}
}

// database is a primary with TLS, and a standby that has each commit.
func database(t *testing.T) (primary, standby *pgtest.Server, authority []byte) {
	t.Helper()
	primary, authority = encrypted(t)
	standby = primary.Standby()
	set(t, primary, `synchronous_standby_names = '*'`)
	return primary, standby, authority
}

// encrypted is a server with TLS.
func encrypted(t *testing.T) (server *pgtest.Server, authority []byte) {
	t.Helper()
	signer := certtest.New(t)
	cert, key := signer.Issue(t, "db", time.Hour)
	server = pgtest.Start(t)
	for file, text := range map[string][]byte{"server.crt": cert, "server.key": key} { // in its data directory
		pgtest.Exec(t, server.Admin(), `COPY (SELECT '`+base64.StdEncoding.EncodeToString(text)+`') TO PROGRAM 'umask 077; base64 -d > `+file+`'`)
	}
	set(t, server, `ssl = on`)
	return server, signer.PEM()
}

// set changes a setting of a server.
func set(t *testing.T, server *pgtest.Server, setting string) {
	t.Helper()
	pgtest.Exec(t, server.Admin(), `ALTER SYSTEM SET `+setting)
	pgtest.Exec(t, server.Admin(), `SELECT pg_reload_conf()`)
}

// byName returns a server's address as a certificate for localhost needs it.
func byName(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	u, err := url.Parse(server.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return "localhost:" + u.Port()
}

// The page's commands are typed as they are, but for names of machines, and for systemd. The two
// machines are two processes, and then they lose one of them, and their primary.
func TestTheStartInPlaceOfKafkaShowsWhatHappens(t *testing.T) {
	primary, standby, authority := database(t)
	addresses, err := proctest.FreeAddresses(4)
	if err != nil {
		t.Fatal(err)
	}
	sh := startShell(t, nil)
	t.Cleanup(func() {
		for _, log := range []string{"weir-1.log", "weir-2.log"} {
			if text, err := os.ReadFile(filepath.Join(sh.dir, log)); t.Failed() && err == nil {
				t.Logf("--- %s\n%s", log, text)
			}
		}
	})
	must := sh.must
	sh.has("openssl", "pg_dump", "pg_restore")
	settings := func(machine int) []string { // of the settings' file
		kafka, http := addresses[2*machine], addresses[2*machine+1]
		return []string{"0.0.0.0:9093", kafka, "weir-1.example.org:9093", kafka, "0.0.0.0:8443", http,
			"db-1.example.org,db-2.example.org", byName(t, primary) + "," + byName(t, standby), "/etc/weir", sh.dir + "/etc"}
	}
	there := strings.NewReplacer(
		"DNS:$host", "IP:127.0.0.1", "weir-1.example.org:9093", addresses[0], "weir-2.example.org:9093", addresses[2], "weir-1.example.org:8443", addresses[1],
		"/etc/default/weir", sh.dir+"/weir-1",
		"systemctl enable --now weir", `weir serve > weir-1.log 2>&1 & first=$!
			(set -a; . ./weir-2; exec weir serve) > weir-2.log 2>&1 & second=$!`,
		`-d "$WEIR_STORE" weir.dump`, `-d "${WEIR_STORE/\/weir\?/\/restored?}" weir.dump`)
	second := "curl -sSf --retry 60 --retry-delay 1 --retry-all-errors --cacert ca.crt https://" + addresses[3] + "/readyz"
	steps := 0
	for _, f := range fences(t, kafkaPage) {
		switch f.kind {
		case "sql":
			for statement := range strings.SplitSeq(strings.TrimSpace(f.text), "\n") {
				pgtest.Exec(t, primary.Admin(), statement)
			}
		case "ini":
			for i, name := range []string{"weir-1", "weir-2"} {
				if err := os.WriteFile(filepath.Join(sh.dir, name), []byte(strings.NewReplacer(settings(i)...).Replace(f.text)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(sh.dir, "db.crt"), authority, 0o600); err != nil {
				t.Fatal(err)
			}
			must("mkdir etc && cp weir.crt weir.key ca.crt db.crt etc")
		case "sh":
			if strings.Contains(f.text, "pg_restore") {
				pgtest.Exec(t, primary.Admin(), `CREATE DATABASE restored OWNER weir`)
			}
			must(there.Replace(f.text))
		case "console":
			for _, s := range transcript("```console\n" + f.text + "```") {
				steps++
				if out := must(there.Replace(s.command)); !matches(out, s.output) {
					t.Fatalf("%s line %d: $ %s\n--- the page shows\n%s\n--- and what happened is\n%s", kafkaPage, f.line+s.line-1, s.command, s.output, out)
				}
				if strings.Contains(s.command, "/readyz") { // and a moment later both know each other
					must(second)
					for _, log := range []string{"weir-1.log", "weir-2.log"} {
						must(`grep -m 1 'brokers="\[1 2\]"' <(tail -n +1 -f ` + log + `)`)
					}
				}
			}
		}
	}
	if steps < 8 {
		t.Fatalf("%s has %d commands", kafkaPage, steps)
	}

	restored, err := url.Parse(primary.Admin())
	if err != nil {
		t.Fatal(err)
	}
	restored.Path = "/restored"
	if n := records(t, restored.String(), "orders"); n != 1 {
		t.Errorf("the restored database has %d records", n)
	}

	produce := func(text string) {
		t.Helper()
		must("echo " + text + " | weir produce orders --user shop --password-file shop.password")
	}
	must("kill -9 $first")
	must(`grep -m 1 -E 'brokers="?\[[12]\]' <(tail -n +1 -f weir-2.log)`) // weir's commands ask one broker, and no other
	must("export WEIR_BOOTSTRAP=" + addresses[2])
	produce("again")
	primary.KillImmediate()
	pgtest.Exec(t, standby.Admin(), `SELECT pg_promote()`)
	must(second)
	produce("promoted")
	out := must("weir consume orders --user admin --password-file admin.password")
	for _, text := range []string{"hello", "again", "promoted"} {
		if strings.Count(out, text+"\n") != 1 {
			t.Errorf("after a failover %q is there %d times", text, strings.Count(out, text+"\n"))
		}
	}
}

// records counts those of a topic, in a store that nobody uses.
func records(t *testing.T, store, topic string) (n int64) {
	t.Helper()
	w, err := weir.Open(t.Context(), store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bounds, err := w.Bounds(t.Context(), topic)
	if err != nil {
		t.Error(err)
	}
	for _, b := range bounds {
		n += b.Next - b.First
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return n
}
