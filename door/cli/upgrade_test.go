package cli

import (
	"database/sql"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
)

// changeFile runs statements in a SQLite file.
func changeFile(t *testing.T, path string, statements ...string) {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, statement := range statements {
		if _, err := file.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// A newer weir upgrades the store under a server. The server says so: to its clients, who may go to
// the newer one, to whoever asks whether it is ready, and in its log.
func TestAServerWhoseStoreWasUpgradedSaysSo(t *testing.T) {
	file := func(t *testing.T) (url string, upgrade func()) {
		path := filepath.Join(t.TempDir(), "weir.db")
		return "sqlite:" + path, func() { changeFile(t, path, "CREATE TABLE of_tomorrow (x)", "PRAGMA user_version = 99") }
	}
	for name, make := range map[string]func(t *testing.T) (url string, upgrade func()){
		"sqlite": file,
		"postgres": func(t *testing.T) (string, func()) {
			url := pgtest.URL(t)
			return url, func() {
				pgtest.Exec(t, url, `INSERT INTO weir.migration (part, number, name) VALUES ('log', 999, 'of tomorrow')`)
			}
		},
		"postgres, the functions for SQL": func(t *testing.T) (string, func()) {
			url := pgtest.URL(t)
			return url, func() {
				pgtest.Exec(t, url, `INSERT INTO weir.migration (part, number, name) VALUES ('sqlfn', 999, 'of tomorrow')`)
			}
		},
		"postgres, without the functions": func(t *testing.T) (string, func()) {
			url := pgtest.URL(t)
			return url, func() {
				pgtest.Exec(t, url, `DROP SCHEMA weir CASCADE; CREATE SCHEMA weir;
					CREATE TABLE weir.migration (part text, number int, name text); INSERT INTO weir.migration VALUES ('log', 999, 'of tomorrow')`)
			}
		},
		"mysql": func(t *testing.T) (string, func()) {
			url := mytest.URL(t)
			return url, func() { mytest.Exec(t, url, "INSERT INTO weir_migration VALUES (99)") }
		},
		"shards": func(t *testing.T) (string, func()) {
			first, _ := file(t)
			second, upgrade := file(t)
			return "shard:" + first + "," + second, upgrade
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, upgrade := make(t)
			s := serve(t, "--store", url)
			weir(t, "", "topic", "create", "greetings", "--partitions", "4").want(t, exitOK)
			weir(t, "before\n", "produce", "greetings").want(t, exitOK)
			upgrade()
			s.waitReady(t, 503)
			const why = "a newer weir has upgraded"
			if _, body := s.get(t, "/readyz"); !strings.Contains(body, why) {
				t.Errorf("/readyz says %s", body)
			}
			s.out.waitFor(t, "restart it with the new version")
			refused := 0
			for partition := range 4 {
				client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(0), kgo.DisableIdempotentWrite())
				if err != nil {
					t.Fatal(err)
				}
				err = client.ProduceSync(t.Context(), &kgo.Record{Topic: "greetings", Partition: int32(partition), Value: []byte("x")}).FirstErr()
				client.Close()
				switch {
				case err == nil && name == "shards": // the other shard has it
				case err == nil || !strings.Contains(err.Error(), "NOT_ENOUGH_REPLICAS"):
					t.Errorf("a Kafka client is told %v", err)
				default:
					refused++
				}
			}
			if refused == 0 {
				t.Error("nothing that Kafka clients produced was refused")
			}
			response, err := http.Post("http://"+s.http+"/v1/topics", "application/json", strings.NewReader(`{"name": "another", "partitions": 4}`))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 503 || !strings.Contains(string(body), "store_upgraded") {
				t.Errorf("over HTTP: %d %s %v", response.StatusCode, body, err)
			}
			if n := strings.Count(s.out.String(), "restart it with the new version"); n != 1 {
				t.Errorf("%d lines say so: %s", n, s.out.String())
			}
			s.stop()
			if name != "postgres, without the functions" {
				weir(t, "", "serve", "--store", url, "--http", "127.0.0.1:0", "--kafka", "off").want(t, exitConfig, why)
			}
		})
	}
}

// A store of an older weir is upgraded, and the log says so before and after; or not, if that is
// what was asked for.
func TestAnUpgradeIsLoggedOrRefused(t *testing.T) {
	file := unpackFile(t, "weir.db.gz")
	onPostgres := restored(t, "weir.sql.gz")
	onMaria := mytest.URL(t)
	serve(t, "--store", onMaria).stop()
	mytest.Exec(t, onMaria, "DROP TABLE weir_swept", "DELETE FROM weir_migration WHERE version >= 2")
	for _, c := range []struct {
		name, url, from, to string
		has                 func() string
	}{
		{"sqlite", "sqlite:" + file, "from=1", "to=3", func() string {
			db, err := sql.Open("sqlite", file)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var version string
			if err := db.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&version); err != nil {
				t.Fatal(err)
			}
			return version
		}},
		{"postgres", onPostgres, "from=", "to=", func() string { return pgtest.Value(t, onPostgres, "SELECT max(number) FROM weir.migration") }},
		{"mysql", onMaria, "from=1", "to=3", func() string { return mytest.Value(t, onMaria, "SELECT max(version) FROM weir_migration") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := c.has()
			weir(t, "", "serve", "--no-upgrade", "--store", c.url, "--http", "127.0.0.1:0", "--kafka", "off").want(t, exitConfig, "older weir", "Back up", "--no-upgrade")
			weir(t, "", "key", "list", "--no-upgrade", "--store", c.url).want(t, exitConfig, "older weir")
			if now := c.has(); now != was {
				t.Fatalf("version %s became %s", was, now)
			}
			s := serve(t, "--store", c.url)
			s.out.waitFor(t, "the store is upgraded")
			out := s.out.String()
			before, after := strings.Index(out, "upgrading the store"), strings.Index(out, "the store is upgraded")
			if before < 0 || before > after || !strings.Contains(out[before:after], c.from) || !strings.Contains(out[before:after], c.to) || !strings.Contains(out[after:], "took=") {
				t.Errorf("weir says: %s", out)
			}
			s.stop()
			again := serve(t, "--no-upgrade", "--store", c.url)
			if out := again.out.String(); strings.Contains(out, "upgrad") {
				t.Errorf("the second time: %s", out)
			}
			again.stop()
		})
	}
	serve(t, "--no-upgrade", "--store", "sqlite:"+filepath.Join(t.TempDir(), "new.db")).stop() // a new store is no upgrade
}
