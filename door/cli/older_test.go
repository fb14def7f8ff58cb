package cli

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
)

// Data that a released weir left behind is whole: testdata/older is of commit ac1ad46, a stopped
// SQLite file and a dump of a PostgreSQL database. Each holds two topics (60 records from Kafka,
// packed; one from HTTP; one of 900 kB; two of weir.publish), what is left of a deleted one, four
// groups that committed through Kafka and HTTP, and an API key. The dump has two events and one
// position more, of transactions after weir was stopped.
func TestDataOfAnOlderVersionIsWhole(t *testing.T) {
	cases := []struct {
		name, url string
		groups    map[string]string // what `weir group describe` says of its partitions, without END and LAG
		more      int               // events that wait in the inbox
	}{
		{"sqlite", "sqlite:" + unpackFile(t, "weir.db.gz"), map[string]string{
			"billing": "orders 0 21, orders 1 4, orders 2 -",
			"audit":   "orders 0 21, orders 1 22, orders 2 18",
			"crew":    "orders 0 21, orders 1 9, orders 2 0",
			"reset":   "bills 0 1",
		}, 0},
		{"postgres", restored(t, "weir.sql.gz"), map[string]string{
			"billing": "orders 0 20, orders 1 5, orders 2 -",
			"audit":   "orders 0 20, orders 1 22, orders 2 19",
			"crew":    "orders 0 10, orders 1 10, orders 2 10",
			"reset":   "bills 0 1",
			"ledger":  "orders 0 9, orders 1 -, orders 2 -",
		}, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, "--store", c.url)
			orders := strings.SplitAfter(strings.TrimSuffix(string(unpackOlder(t, c.name+".orders.json")), "\n"), "\n")
			all := weir(t, "", "consume", "orders", "--output", "json", "--follow", "--max", strconv.Itoa(len(orders)+c.more))
			all.want(t, exitOK)
			for _, line := range orders {
				line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `{"key":"from"`, `{"name":"from"`) // as that program wrote headers
				if !strings.Contains(all.out, line) {
					t.Errorf("a record is lost, or another: %s", line)
				}
			}
			if c.more > 0 {
				all.want(t, exitOK, `"unmoved 64"`, `"unmoved 65"`)
			}
			if got := weir(t, "", "consume", "bills"); got.code != exitOK || got.out != strings.Repeat("x", 900_000)+"\n" {
				t.Errorf("the large record has %d bytes: %s", len(got.out), got.err)
			}
			for group, want := range c.groups {
				if got := positions(t, group, want); got != want {
					t.Errorf("group %s is at %s, want %s", group, got, want)
				}
			}
			weir(t, "", "topic", "describe", "gone").want(t, exitFailed)
			key := strings.TrimSpace(string(unpackOlder(t, c.name+".key")))
			if with, without := s.ask(t, key), s.ask(t, ""); with != 404 || without != 401 {
				t.Errorf("a page that is not there: %d with the key, %d without", with, without)
			}
			weir(t, "order-1:again\n", "produce", "orders", "--key-separator=:").want(t, exitOK)
			weir(t, "", "consume", "orders", "--group", "audit", "--max", "1", "--follow").want(t, exitOK)
			weir(t, "", "topic", "create", "gone").want(t, exitOK)
			weir(t, "", "consume", "gone").want(t, exitOK)
		})
	}
}

// positions is what `weir group describe` says a group has committed. What it wants may still be on
// its way from the inbox.
func positions(t *testing.T, group, want string) (got string) {
	t.Helper()
	again, late := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		r := weir(t, "", "group", "describe", group)
		r.want(t, exitOK)
		var all []string
		for line := range strings.Lines(r.out) {
			if f := strings.Fields(line); len(f) == 6 && f[0] != "TOPIC" {
				all = append(all, strings.Join(f[:3], " "))
			}
		}
		if got = strings.Join(all, ", "); got == want {
			return got
		}
		select {
		case <-again.C:
		case <-late:
			return got
		}
	}
}

// restored is a database with what a dump holds.
func restored(t *testing.T, dump string) (address string) {
	t.Helper()
	roles := serve(t, "--store", pgtest.URL(t)) // a dump grants to weir's roles, which are the server's and not the database's
	roles.stop()
	address = pgtest.URL(t)
	pgtest.Exec(t, address, string(unpackOlder(t, dump)))
	return address
}

func unpackFile(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), strings.TrimSuffix(name, ".gz"))
	if err := os.WriteFile(path, unpackOlder(t, name), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unpackOlder reads a file of testdata/older.
func unpackOlder(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata/older", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
