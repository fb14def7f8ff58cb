package tour

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
)

// What the pages for operators say is done as they say it, with the commands of the pages.

const (
	operationsPage = "../../docs/operations.md"
	s3Page         = "../../docs/s3.md"
	shardsPage     = "../../docs/shards.md"
	movingPage     = "../../docs/moving.md"
	troublePage    = "../../docs/troubleshooting.md"
)

// systemd's service is a process here, and its journal a file.
const (
	startWeir = "weir serve >> weir.log 2>&1 & weir=$!"
	stopWeir  = "kill $weir; wait $weir"
	isReady   = "curl -sf --retry 60 --retry-delay 1 --retry-connrefused $WEIR_SERVER/readyz"
)

var service = []string{
	"systemctl start weir", startWeir, "systemctl stop weir", stopWeir,
	// The line may not be there yet.
	"journalctl -u weir | grep", "< <(tail -n +1 -f weir.log) grep -m 1",
}

// starts starts weir.
func (s *shell) starts() {
	s.t.Helper()
	s.must(startWeir)
	s.must(isReady)
}

// begins starts weir on an empty store, and makes the topic orders with one event.
func (s *shell) begins() {
	s.t.Helper()
	s.starts()
	s.must("weir topic create orders")
	s.publishes("one")
}

func (s *shell) publishes(event string) {
	s.t.Helper()
	s.must("echo " + event + " | weir produce orders")
}

// holds checks which events the topic orders has.
func (s *shell) holds(want ...string) {
	s.t.Helper()
	if got := strings.Fields(s.must("weir consume orders")); !slices.Equal(got, want) {
		s.t.Errorf("the topic has %q, want %q", got, want)
	}
}

// holdsSorted checks which events the topic orders has, in whatever order.
func (s *shell) holdsSorted(want ...string) {
	s.t.Helper()
	if got := strings.Fields(s.must("weir consume orders | sort")); !slices.Equal(got, want) {
		s.t.Errorf("the topic has %q, want %q", got, want)
	}
}

// comesToHold checks which events the topic orders has once it has so many.
func (s *shell) comesToHold(want ...string) {
	s.t.Helper()
	s.must(fmt.Sprintf("weir consume orders --follow --max %d", len(want)))
	s.holds(want...)
}

// inline returns the commands in the text of a page that begin with some words.
func inline(t *testing.T, page, begins string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`("+regexp.QuoteMeta(begins)+"[^`]*)`").FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, m[1])
	}
	if len(commands) == 0 {
		t.Fatalf("%s has no command that begins with %q", page, begins)
	}
	return commands
}

// parsed returns an address, taken apart.
func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// as returns the address of a database for a role whose password is secret.
func as(t *testing.T, server *pgtest.Server, role, database string) string {
	t.Helper()
	u := parsed(t, server.Admin())
	u.Path = "/" + database
	if role != u.User.Username() {
		u.User = url.UserPassword(role, "secret")
	}
	return u.String()
}

// sql executes statements on a server, one after the other.
func sql(t *testing.T, address string, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		pgtest.Exec(t, address, statement)
	}
}

func TestASQLiteBackupIsPutBackAsThePageSays(t *testing.T) {
	const restore = `sqlite3 weir.db ".restore`
	sh := stage{
		page: operationsPage, section: "### Backup: SQLite", env: []string{"WEIR_STORE=sqlite:weir.db"}, named: service,
		before: map[string]func(*shell){
			`sqlite3 weir.db ".backup`: func(sh *shell) { sh.has("sqlite3"); sh.begins() },
			restore:                    func(sh *shell) { sh.publishes("two") },
		},
	}.replay(t)
	sh.holds("one")

	// While no weir runs, too; then only the next one can say so.
	sh.publishes("three")
	sh.must(stopWeir)
	sh.must(restore + ` copy.db"`)
	sh.starts()
	sh.must("grep 'since weir last used it; a new leader epoch begins' weir.log")
	sh.holds("one")
}

// weir has the user that its page makes, with no other rights.
func TestAMariaDBDumpIsRestoredAsThePageSays(t *testing.T) {
	server := mytest.Start(t)
	mytest.Exec(t, server.Admin(), strings.Split(strings.TrimSpace(fencesOf(t, "../../docs/mysql.md", "## The user")[0].text), "\n")...)
	u := parsed(t, server.Admin())
	u.User, u.Path = url.UserPassword("weir", "secret"), "/weir"
	flags := "-h " + u.Hostname() + " -P " + u.Port() + " -u weir weir"
	sh := stage{
		page: operationsPage, section: "### Backup: MariaDB and MySQL", env: []string{"WEIR_STORE=" + u.String(), "MYSQL_PWD=secret"},
		named: append([]string{"-h db.internal -u weir weir", flags}, service...),
		before: map[string]func(*shell){
			"mariadb-dump":        func(sh *shell) { sh.begins() },
			"systemctl stop weir": func(sh *shell) { sh.publishes("two") },
			"mariadb -h":          func(*shell) { mytest.Exec(t, server.Admin(), "DROP DATABASE weir", "CREATE DATABASE weir") },
		},
	}.replay(t)
	sh.holds("one")
	sh.must("mariadb " + flags + ` -e "CALL weir_publish('orders', 'k', 'with-SQL')"`)
	sh.comesToHold("one", "with-SQL")
}

// weir's own role dumps and restores what it owns.
func TestAPostgresDumpIsRestoredAsThePageSays(t *testing.T) {
	server := pgtest.Start(t)
	sql(t, server.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'secret' CREATEROLE`, `CREATE ROLE shop LOGIN PASSWORD 'secret'`,
		`CREATE DATABASE weir OWNER weir`, `CREATE DATABASE empty OWNER weir`)
	publish := func(role, database, event string) {
		t.Helper()
		sql(t, as(t, server, role, database), `SELECT weir.publish('orders', 'k', '`+event+`')`)
	}
	sh := stage{
		page: operationsPage, section: "### Backup: PostgreSQL", env: []string{"WEIR_STORE=" + as(t, server, "weir", "weir")},
		named: append([]string{"postgres://postgres@db.internal/postgres", server.Admin(), "postgres://weir@db.internal/restored", as(t, server, "weir", "restored")}, service...),
		before: map[string]func(*shell){
			"pg_dump": func(sh *shell) {
				sh.has("pg_dump", "pg_restore")
				sh.begins()
				sh.must(stopWeir)
				publish("weir", "weir", "in-the-inbox")
			},
			"pg_restore --no-privileges": func(sh *shell) { sh.must("export WEIR_STORE='" + as(t, server, "weir", "empty") + "'") },
			"psql -XqAt postgres://postgres@db.internal/postgres -c": func(sh *shell) {
				sh.starts()
				sh.must("grep 'since weir last used it; a new leader epoch begins' weir.log")
				sh.comesToHold("one", "in-the-inbox")
				sh.must(stopWeir + "; mv weir.log empty.log")

				sql(t, server.Admin(), `GRANT weir_producer TO shop`)
				sh.must("export WEIR_STORE='" + as(t, server, "weir", "weir") + "'")
				sh.starts()
				sh.comesToHold("one", "in-the-inbox")
				sh.publishes("lost")
				// A table that the dump does not have.
				sql(t, as(t, server, "weir", "weir"), `SELECT weir.roll(false, 0, '0')`)
			},
		},
	}.replay(t)
	sh.comesToHold("one", "in-the-inbox")
	publish("shop", "weir", "with-SQL")
	sh.comesToHold("one", "in-the-inbox", "with-SQL")
}

// A superuser dumps the tables of a program and weir's, and restores them on another server, where
// the program goes on.
func TestADatabaseWithAProgramsTablesIsRestoredAsThePageSays(t *testing.T) {
	one, two := pgtest.Start(t), pgtest.Start(t)
	sql(t, one.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'secret' CREATEROLE`, `CREATE ROLE shop LOGIN PASSWORD 'secret'`, `CREATE DATABASE shop`)
	sql(t, as(t, one, "postgres", "shop"), `CREATE SCHEMA weir AUTHORIZATION weir`, `CREATE SCHEMA shop AUTHORIZATION shop`, `CREATE TABLE shop.sold (id int)`, `ALTER TABLE shop.sold OWNER TO shop`)
	sell := func(server *pgtest.Server, database, event string) {
		t.Helper()
		sql(t, as(t, server, "shop", database), `BEGIN; INSERT INTO sold VALUES (1); SELECT weir.publish('orders', 'k', '`+event+`'); COMMIT`)
	}
	sh := stage{
		page: operationsPage, section: "### Backup: a database that has your tables, too", env: []string{"WEIR_STORE=" + as(t, one, "weir", "shop")},
		named: []string{"postgres://postgres@db-1.example.org/shop", as(t, one, "postgres", "shop"),
			"postgres://postgres@db-2.example.org/postgres", two.Admin(), "postgres://postgres@db-2.example.org/restored", as(t, two, "postgres", "restored")},
		before: map[string]func(*shell){
			"pg_dump": func(sh *shell) {
				sh.has("pg_dump", "pg_restore")
				sh.begins()
				sql(t, one.Admin(), `GRANT weir_producer TO shop`)
				sell(one, "shop", "sold")
				sh.comesToHold("one", "sold")
			},
			"psql": func(sh *shell) {
				sell(one, "shop", "lost")
				sh.comesToHold("one", "sold", "lost")
				sh.must(stopWeir)
			},
		},
	}.replay(t)
	sh.must("export WEIR_STORE='" + as(t, two, "weir", "restored") + "'")
	sh.starts()
	sh.holds("one", "sold")
	if n := pgtest.Value(t, as(t, two, "shop", "restored"), `SELECT count(*) FROM sold`); n != "1" {
		t.Errorf("the program's table has %s rows, want 1", n)
	}
	sell(two, "restored", "again")
	sh.comesToHold("one", "sold", "again")
}

// The primary dies. A standby that is the primary of another standby by its settings would have
// each commit wait, without what the page says.
func TestAFailoverIsMadeAsThePageSays(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Standby()
	sql(t, primary.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'secret'`, `CREATE DATABASE weir OWNER weir`)
	store := parsed(t, as(t, primary, "weir", "weir"))
	store.Host += "," + parsed(t, standby.Admin()).Host
	sh := stage{
		page: operationsPage, section: "### Failovers: PostgreSQL", env: []string{"WEIR_STORE=" + store.String(), "PRIMARY=" + primary.Admin()},
		named: append([]string{"postgres://postgres@db-1.example.org/postgres", primary.Admin(), "postgres://postgres@db-2.example.org/postgres", standby.Admin()}, service...),
		before: map[string]func(*shell){
			"psql -XqAt postgres://postgres@db-2.example.org/postgres <<'SQL'\nSELECT format": func(sh *shell) { sh.begins() },
			"psql -XAt": func(sh *shell) {
				sh.must(`until psql -XAt "$PRIMARY" -c 'SELECT sync_state FROM pg_stat_replication' | grep -qx sync; do :; done`)
			},
			"psql -XqAt postgres://postgres@db-2.example.org/postgres <<'SQL'\nSELECT pg_promote": func(sh *shell) {
				sh.publishes("two")
				set(t, standby, `synchronous_standby_names = 'db1'`)
				primary.KillImmediate()
			},
		},
	}.replay(t)
	sh.must(isReady)
	sh.publishes("three")
	sh.holds("one", "two", "three")
}

// A database of an older weir is upgraded. The dump that was made before leads back.
func TestAnUpgradeIsMadeAsThePageSays(t *testing.T) {
	older, err := filepath.Abs("../../door/cli/testdata/older/weir.sql.gz")
	if err != nil {
		t.Fatal(err)
	}
	server := pgtest.Start(t)
	for _, role := range []string{"weir_producer", "weir_consumer", "weir_reader", "weir_creator"} {
		sql(t, server.Admin(), `CREATE ROLE `+role)
	}
	sql(t, server.Admin(), `CREATE DATABASE weir`, `CREATE DATABASE back`)
	const schema = "weir doctor | grep 'schema  '"
	said := func(sh *shell) string { return strings.Join(strings.Fields(sh.must(schema)), " ") }
	was := ""
	sh := stage{
		page: operationsPage, section: "## Upgrades", env: []string{"WEIR_STORE=" + as(t, server, "postgres", "weir"), "BACK=" + as(t, server, "postgres", "back")},
		named: append([]string{"systemctl stop weir", "true", // the older weir is gone
			"journalctl -u weir |", "cat weir.log |"}, service...), // it is ready, so all lines are there
		samples: []string{"40 of 41", "from=40 to=41", "took=12ms"},
		before: map[string]func(*shell){
			schema: func(sh *shell) {
				sh.has("pg_dump", "pg_restore")
				sh.must("zcat " + older + ` | psql -X -q -v ON_ERROR_STOP=1 "$WEIR_STORE"`)
				was = said(sh)
			},
		},
	}.replay(t)
	now := said(sh)
	sh.must("weir consume orders")
	sh.must(stopWeir)
	sh.must(`pg_restore --single-transaction -d "$BACK" before.dump && export WEIR_STORE="$BACK"`)
	if back := said(sh); back != was || now == was {
		t.Errorf("the doctor says %q, after the upgrade %q, and after the restore %q", was, now, back)
	}
}

// aws gives the shell the command line of AWS, with some flags.
func (s *shell) aws(flags string) {
	s.t.Helper()
	libs := language{
		name: "commands to a bucket", libraries: "python-awscli-1.45.11",
		fetch: func(dir string) [][]string {
			return [][]string{{"python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", dir, "awscli==1.45.11"}}
		},
	}.have(s.t)
	s.must("aws() { PYTHONPATH=" + libs + " python3 -m awscli " + flags + ` "$@"; }`)
}

// The backup is that of the start page, with the command that this page has, too.
func TestACopyOfABucketIsRestoredAsThePageSays(t *testing.T) {
	bucket := parsed(t, s3test.URL(t))
	copies, backup := inline(t, s3Page, "aws s3 sync"), fencesOf(t, "../../docs/start-s3.md", "## A backup")[0].text
	if len(copies) != 2 || !strings.Contains(backup, copies[0]+" ") {
		t.Fatalf("%s copies with %q, and the start page with\n%s", s3Page, copies, backup)
	}
	elsewhere := "--endpoint-url " + bucket.Query().Get("endpoint") + " --region us-east-1"
	there := strings.NewReplacer(append([]string{"s3://my-bucket/weir", "s3://" + bucket.Host + bucket.Path, "s3://my-bucket", "s3://" + bucket.Host, "s3://copies", "s3://" + bucket.Host + "/copies",
		"--endpoint-url https://fsn1.your-objectstorage.com --region fsn1", elsewhere}, service...)...)
	restored := *bucket
	restored.Path = "/restored"
	sh, _, _ := stage{env: []string{"WEIR_STORE=" + bucket.String() + "&alone=true", "RESTORED=" + restored.String()}}.start(t)
	sh.aws("")
	sh.begins()
	sh.must(there.Replace(backup))
	sh.must(isReady)
	sh.publishes("lost")
	sh.must(stopWeir)
	sh.must(there.Replace(copies[1]) + " " + elsewhere)
	sh.must(`export WEIR_STORE="$RESTORED"`)
	sh.must(inline(t, s3Page, `weir verify --store "$WEIR_STORE"`)[0])
	sh.starts()
	sh.holds("one")
}

func TestTheThreeStepsOfAMoveWork(t *testing.T) {
	sh, there, _ := stage{env: []string{"TARGET=" + pgtest.URL(t)}, named: []string{"postgres://weir@db.internal/weir", `"$TARGET"`}}.start(t)
	steps := strings.Split(strings.TrimSpace(fencesOf(t, movingPage, "## In three steps")[0].text), "\n")
	if len(steps) != 3 {
		t.Fatalf("the steps are %q", steps)
	}
	sh.begins() // on the store by default, from which the page copies
	sh.must(there.Replace(steps[0]))
	sh.publishes("two")
	sh.must(there.Replace(steps[1]))
	sh.must("grep -m 1 'it was copied to' <(tail -n +1 -f weir.log)")
	sh.must(stopWeir + "; " + there.Replace(steps[2]) + " > moved.log 2>&1 & weir=$!")
	sh.must(isReady)
	sh.holds("one", "two")
}

func TestPartitionsMoveAsThePageSays(t *testing.T) {
	sh, _, _ := stage{env: []string{"WEIR_STORE=shard:sqlite:0.db,sqlite:1.db,sqlite:2.db"}}.start(t)
	sh.starts()
	sh.must("weir topic create orders --partitions 6")
	sh.must("for p in 0 1 2 3 4 5; do echo $p | weir produce orders --partition $p; done")
	sh.must("set -e\n" + strings.ReplaceAll(fencesOf(t, shardsPage, "## Moving partitions")[0].text, "shard:…", `"$WEIR_STORE"`) + "\nset +e")
	const where = `weir shard list --output json | jq -c 'map(select(.topic == "orders") | .shard) | unique'`
	if on := strings.TrimSpace(sh.must(where)); on != "[1]" {
		t.Errorf("the partitions are on the shards %s, want 1", on)
	}
	sh.holdsSorted("0", "1", "2", "3", "4", "5")
}

// A copy of a shard takes the shard's place under weir, by its name: the other shard has lost
// nothing.
func TestARestoredShardTakesItsPlaceAsThePageSays(t *testing.T) {
	sh, _, _ := stage{env: []string{"WEIR_STORE=shard:sqlite:0.db,sqlite:1.db"}}.start(t)
	sh.has("sqlite3")
	sh.starts()
	sh.must("weir topic create orders --partitions 2")
	publish := func(event string, partition int) {
		t.Helper()
		sh.must(fmt.Sprintf("echo %s | weir produce orders --partition %d", event, partition))
	}
	publish("a", 0)
	publish("b", 1)
	sh.must(`sqlite3 1.db ".backup restored.db"`)
	publish("lost", 1)
	publish("c", 0)
	sh.must("mv restored.db 1.db")
	sh.must("grep -m 1 'the store has lost acknowledged records' <(tail -n +1 -f weir.log)")
	sh.holdsSorted("a", "b", "c")
}

// The commands about API keys, and those in the text, are run in the page's order.
func TestTheCommandsOfTheOperationsPageWork(t *testing.T) {
	const listed = "weir key list --output json | jq -r "
	sh, there, _ := stage{env: []string{"WEIR_STORE=sqlite:weir.db"}, named: []string{
		"postgres://weir@db.internal/weir", "sqlite:weir.db", "3k7qhd2m", "$(" + listed + "'.[0].id') --yes",
		"group describe NAME", "group describe billing", "group reset NAME --to POSITION", "group reset billing --to earliest", "queue peek NAME", "queue peek mail", "NAME", "orders",
		"rotate ID", "rotate $(" + listed + `'.[] | select(.name == "mailer") | .id')`, "URL", `"$WEIR_STORE"`,
	}}.start(t)
	for _, f := range fencesOf(t, operationsPage, "## API keys") {
		for command := range strings.Lines(f.text) {
			sh.must(there.Replace(command))
		}
	}
	if revoked := strings.TrimSpace(sh.must(listed + `'map(select(.revoked)) | length'`)); revoked != "1" {
		t.Errorf("%s keys of two are revoked, want one", revoked)
	}
	sh.must(inline(t, operationsPage, "KEY=$(weir key create")[0])
	sh.must("export WEIR_API_KEY=$(weir key create ops --access admin --all-topics --all-groups --output json | jq -r .secret)")
	sh.begins()
	sh.must("weir consume orders --group billing --max 1 && weir queue create mail")
	for header, want := range map[string]string{`"Authorization: Bearer $KEY"`: "200", "X-None:": "401"} {
		if got := sh.must("curl -s -o mail.json -w '%{http_code}' -H " + header + " $WEIR_SERVER/v1/queues/mail"); strings.TrimSpace(got) != want {
			t.Errorf("with the header %s the answer is %s, want %s", header, got, want)
		}
	}
	notAlone := []string{"weir user create", "weir projection describe NAME"} // they need a name, and a program that runs
	for _, command := range inline(t, operationsPage, "weir ") {
		if slices.Contains(notAlone, command) || strings.HasPrefix(command, "weir serve") && !strings.Contains(command, "--help") {
			continue
		}
		out, code := sh.run(there.Replace(command))
		if inMemory := strings.HasPrefix(command, "weir doctor") && code == 6; code != 0 && !inMemory { // the tests' directory may be
			t.Errorf("$ %s\nended with %d, and printed\n%s", command, code, out)
		}
	}
}

// The page has the lines that tell of a loss as the log has them.
func TestTheLinesThatTellOfALossAreThoseOfTheLog(t *testing.T) {
	page, err := os.ReadFile(operationsPage)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../eventlog/incarnation.go")
	if err != nil {
		t.Fatal(err)
	}
	logged := regexp.MustCompile(`Logger\.(Warn|Info)\("([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	rows := regexp.MustCompile("(?m)^\\| (WARN|INFO) `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		if !slices.ContainsFunc(logged, func(line []string) bool { return strings.EqualFold(line[1], row[1]) && matches(line[2], row[2]) }) {
			t.Errorf("no process logs %s %q", row[1], row[2])
		}
	}
	if len(rows) != 3 {
		t.Errorf("the page has %d lines", len(rows))
	}
}

// Who looks for a message of weir finds it: each part of a quoted line, between what differs, is in
// the source.
func TestTroublesAreQuotedWordForWord(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2, entry.IsDir() && entry.Name() == "bench":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql"):
			return nil
		}
		text, err := os.ReadFile(path)
		source.WriteString(strings.ReplaceAll(string(text), `\"`, `"`))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const short = 8        // and shorter parts say nothing
	elsewhere := []string{ // a message of SQLite, two lines in one, and names of settings in "%s is ON"
		"database is locked (5) (SQLITE_BUSY)", "there are no credentials for S3. weir looked in", "wsrep_on is ON", "group_replication_single_primary_mode is OFF",
	}
	quoted := 0
	for _, f := range fences(t, troublePage) {
		for _, part := range regexp.MustCompile(`…|: |; |\n`).Split(f.text, -1) {
			part = strings.Trim(part, " :;,.")
			if len(part) < short || slices.Contains(elsewhere, part) {
				continue
			}
			if quoted++; !strings.Contains(source.String(), part) {
				t.Errorf("%s, in the block of line %d: nothing says %q", troublePage, f.line, part)
			}
		}
	}
	if quoted < 50 {
		t.Errorf("%d parts are quoted", quoted)
	}
}
