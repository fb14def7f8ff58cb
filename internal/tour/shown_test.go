package tour

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/internal/pgtest"
)

// What pages show besides walks: programs to build, pieces of Go, statements, settings.

// Each walk begins with building what it uses. Building weir itself is left to startShell.
func TestTheWalksBuildTheProgramsThatTheyUse(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ page, section, program string }{
		{"tour.md", "# A tour in one shell", "handler"},
		{"queue.md", "## A walk through", "worker"},
		{"streams.md", "## A walk through", "accounts"},
		{"start-events.md", "# Event sourcing in Go, from nothing", "bank"},
	} {
		t.Run(c.page, func(t *testing.T) {
			sh := startShell(t, nil, "TMPDIR="+t.TempDir())
			sh.must(`make() { [ "$*" = build ]; }; cd ` + root)
			sh.must("set -e\n" + strings.ReplaceAll(blocks(t, "../../docs/"+c.page, c.section, "sh")[0], "go build -o ", "go build -o "+sh.dir+"/") + "\nset +e")
			if made := sh.must("ls " + sh.dir); !slices.Contains(strings.Fields(made), c.program) {
				t.Errorf("%s builds %s, and not %s", c.page, made, c.program)
			}
			if here := sh.must("pwd && ls"); strings.Contains(here, root) != (c.page == "tour.md") {
				t.Errorf("%s goes on in %s", c.page, here)
			}
		})
	}
}

// frames has what stands around a piece of Go.
const frames = `package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/weir-log/weir"
)

type (
	Order struct{}
	form2 struct {
		Form  int
		Order Order
	}
)

func apply(o Order, _ weir.StreamEvent) (Order, error) { return o, nil }

func queue(ctx context.Context, w *weir.Log, tx pgx.Tx, mail []byte, send func(context.Context, []byte) error) (err error) {
	// QUEUE
	return err
}

func schedule(ctx context.Context, w *weir.Log, digest []byte) (err error) {
	// SCHEDULE
	return err
}

func aggregate(category *weir.Category) any {
	// AGGREGATE
	return orders
}

func snapshot(ctx context.Context, category *weir.Category, stream string, version int64, data []byte) error {
	// SNAPSHOT
	return err
}

var _ = weir.Aggregate[Order]{
	// UPCAST
}

var _, _, _, _ = json.Marshal, fmt.Errorf, time.Minute, queue

func main() {}
`

func TestThePiecesOfGoOfThePagesCompile(t *testing.T) {
	const streams = "../../docs/streams.md"
	snapshots := blocks(t, streams, "## Snapshots", "go")
	text := strings.NewReplacer(
		"// QUEUE", blocks(t, queuePage, "## How to use it", "go")[0], "// SCHEDULE", blocks(t, queuePage, "## Schedules", "go")[0],
		"// AGGREGATE", snapshots[0], "// SNAPSHOT", snapshots[1], "// UPCAST", blocks(t, streams, "## When events change", "go")[0],
	).Replace(frames)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheStreamsPageShowsTheFieldsOfAProjection(t *testing.T) {
	source, err := os.ReadFile("../../projection.go")
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, line := range strings.Split(blocks(t, "../../docs/streams.md", "## Projections", "go")[0], "\n") {
		line, _, _ = strings.Cut(line, "//")
		line = "\n" + strings.TrimRight(line, " ")
		if line = regexp.MustCompile(`(\w) {2,}`).ReplaceAllString(line, "$1 "); line == "\n\t…" || line == "\n}" {
			continue
		}
		if fields++; !regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(line), " ", " +")).Match(source) {
			t.Errorf("projection.go does not have%s", line)
		}
	}
	if fields < 8 {
		t.Errorf("the page shows %d lines", fields)
	}
}

// A page that shows settings of a client, of a proxy or of a dump for its own names has no others
// than the page where they are tried.
func TestSettingsThatPagesShareAreTheSame(t *testing.T) {
	const postgres, kubernetes = "../../docs/start-events-postgres.md", "../../docs/start-kubernetes.md"
	client := strings.Replace(blocks(t, securityPage, "### Settings of clients", "properties")[0], `"admin"`, `"shop"`, 1)
	dump := ""
	for _, f := range fencesOf(t, operationsPage, "### Backup: a database that has your tables, too") {
		for _, s := range transcript(f) {
			if strings.HasPrefix(s.command, "pg_") {
				dump += "\n" + strings.NewReplacer("db-1.example.org", "localhost", "db-2.example.org", "localhost").Replace(s.command)
			}
		}
	}
	for _, c := range []struct{ page, section, kind, want string }{
		{kafkaPage, "## 5. Start, and try it", "properties", "bootstrap.servers=weir-1.example.org:9093,weir-2.example.org:9093\n" + client},
		{kubernetes, "## Clients", "properties", "bootstrap.servers=weir.events.svc:9093\n" + client},
		{"../../docs/start-s3.md", "## From other machines", "caddyfile", blocks(t, httpPage, "## Behind a proxy", "caddyfile")[0]},
		{postgres, "## Deploy, back up, upgrade", "sh", dump[1:]},
	} {
		if got := blocks(t, c.page, c.section, c.kind)[0]; got != c.want {
			t.Errorf("%s %s shows\n%s\nand another page\n%s", c.page, c.section, got, c.want)
		}
	}
}

// The page's queue is used on the command line, and in SQL.
func TestTheQueuePagesCommandsAndStatementsWork(t *testing.T) {
	database := pgtest.Start(t).Admin()
	here := []string{
		"-- ./send-mail", "-- sh -c 'cat >> sent; echo >> sent' > work.log 2>&1 & work=$!", "--delay 1m", "--delay 1s",
	}
	sh := stage{page: queuePage, section: "## How to use it", types: true, env: []string{"WEIR_STORE=" + database}, named: here,
		before: map[string]func(*shell){"weir queue create": func(sh *shell) { sh.starts(); sh.must("> sent") }},
	}.replay(t)
	sh.must("grep -m 1 'to: a@example.org' <(tail --pid $work -n +1 -f sent)")
	stage{page: queuePage, section: "## Schedules", types: true, env: []string{"WEIR_STORE=" + database},
		before: map[string]func(*shell){"weir queue schedule": func(s *shell) { s.must("WEIR_SERVER=" + strings.TrimSpace(sh.must("echo $WEIR_SERVER"))) }},
	}.replay(t)

	sql := func(statements string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(sh.dir, "statements.sql"), []byte(statements), 0o600); err != nil {
			t.Fatal(err)
		}
		return sh.must("psql -XqAt -v ON_ERROR_STOP=1 '" + database + "' -f statements.sql")
	}
	shown := blocks(t, queuePage, "## How to use it", "sql")
	sh.must("kill $work; weir queue create bills")
	sql("CREATE TABLE orders (id int, customer int); CREATE TABLE bills (id int);" + shown[0])
	sql("SELECT weir.enqueue('bills', 'one')")
	claim, rest, _ := strings.Cut(strings.ReplaceAll(shown[1], "'mail'", "'bills'"), "\n")
	claimed := sql(claim)
	receipt := regexp.MustCompile(`[0-9a-f]+\.\d+\.\d+\.\d+\.[0-9a-f]+`).FindString(claimed)
	sql(strings.NewReplacer("9f3c21…", receipt, "bills …", "bills VALUES (1)").Replace(rest))
	if done := sql("SELECT count(*) FROM bills"); strings.TrimSpace(done) != "1" || receipt == "" {
		t.Errorf("the claim was %q, and then there were %s bills", claimed, done)
	}
	sql("CREATE DATABASE tests")
	sql("\\c tests\n" + blocks(t, queuePage, "### In your tests", "sql")[0] + "\nSELECT weir.enqueue('mail', '{\"order\": 42}'::jsonb)")
}

// A new table of a projection is beside the old one, as the page has it to which this one leads.
func TestTheStatementsOfTheStreamsPageWork(t *testing.T) {
	const streams = "../../docs/streams.md"
	sh, _, _ := stage{env: []string{"WEIR_STORE=" + pgtest.URL(t)}}.start(t)
	sh.starts()
	sh.must("weir stream category create order")
	run := func(statements ...string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(sh.dir, "statements.sql"), []byte(strings.Join(statements, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return sh.must("psql -XqAt -v ON_ERROR_STOP=1 $WEIR_STORE -f statements.sql")
	}
	got := run("CREATE TABLE payments (id int); SELECT weir.append('order', '4711', 'none', 'Placed', '{}'::jsonb);",
		strings.Replace(blocks(t, streams, "## In SQL", "sql")[0], "payments …", "payments VALUES (1)", 1))
	if !strings.Contains(got, `1|Paid|{"amount": 20}`) {
		t.Errorf("it prints %s", got)
	}
	tables, err := os.ReadFile("../../examples/accounts/tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	shapes := blocks(t, streams, "### A new shape", "sql")
	run(string(tables), shapes[0], "CREATE TABLE made2 (LIKE made);", shapes[1], "SELECT account, balance FROM balances; SELECT account, balance, entries FROM balances2;")
}

func TestWeirStartsAsTheOperationsPageSays(t *testing.T) {
	server, authority := encrypted(t)
	sql(t, server.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'PASSWORD' CREATEROLE`, `CREATE DATABASE weir OWNER weir`)
	named := []string{"db-1.example.org,db-2.example.org", byName(t, server), "/etc/weir/ca.crt", "db.crt", "0.0.0.0:9093", "127.0.0.1:0"}
	sh := stage{
		page: operationsPage, section: "## Start and stop", types: true,
		named:  append(named, "sqlite:/var/lib/weir/weir.db", "sqlite:weir.db", "postgres://weir@db.internal/weir", pgtest.URL(t)),
		before: map[string]func(*shell){"weir serve": func(sh *shell) { sh.hasTerminals() }},
	}.replay(t)
	cert, key := certtest.New(t).Issue(t, "weir", 1<<40)
	for name, text := range map[string][]byte{
		"db.crt": authority, "weir.crt": cert, "weir.key": key,
		"settings": []byte(strings.NewReplacer(append(named, kafkaAddress, "$WEIR_BOOTSTRAP")...).Replace(blocks(t, operationsPage, "## Start and stop", "ini")[0])),
	} {
		if err := os.WriteFile(filepath.Join(sh.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sh.must("set -a; . ./settings; set +a; weir serve --tls-cert weir.crt --tls-key weir.key")
	sh.must("echo hello | weir produce orders")
}
