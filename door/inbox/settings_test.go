package inbox

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/mytest"
)

// latin1 is a server with MariaDB's own default charset, whose transactions end if a row was
// changed since their snapshot, as from MariaDB 11.8 on. MySQL has no such setting.
func latin1(t *testing.T) *rig {
	t.Helper()
	return newRig(t, mytest.Start(t, "--character-set-server=latin1", "--loose-innodb-snapshot-isolation=ON").URL())
}

func TestHeadersKeepTheirTextWhateverTheDatabasesCharset(t *testing.T) {
	r := latin1(t)
	const headers = `{"é😀": "Łódź 😀"}`
	if _, err := r.db.Exec("SET NAMES utf8mb4"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.Exec("CALL weir_publish_event('orders', 'k', 'v', ?, 0)", headers); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := r.db.QueryRow("SELECT headers FROM weir_inbox").Scan(&got); err != nil || got != headers {
		t.Errorf("headers are %s, %v; want %s", got, err, headers)
	}
}

// A column or parameter without a charset has that of the database.
func TestEveryTextNamesItsCharset(t *testing.T) {
	r := latin1(t)
	rows, err := r.db.Query(`SELECT CONCAT(table_name, '.', column_name), character_set_name FROM information_schema.columns
		WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL
		UNION ALL SELECT CONCAT(specific_name, '.', parameter_name), character_set_name FROM information_schema.parameters
		WHERE specific_schema = DATABASE() AND character_set_name IS NOT NULL`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var name, charset string
		if err := rows.Scan(&name, &charset); err != nil {
			t.Fatal(err)
		}
		if n++; charset != "utf8mb4" && charset != "ascii" {
			t.Errorf("%s is in %s", name, charset)
		}
	}
	if err := rows.Err(); err != nil || n < 10 {
		t.Errorf("%d texts, %v", n, err)
	}
}

// A table compares names as if they had no spaces at their ends.
func TestConsumersWhoseNamesDifferInSpacesShareNothing(t *testing.T) {
	r := newRig(t, mytest.URL(t))
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, name := range []string{"billing ", " ", strings.Repeat("b", 250), strings.Repeat("b", 249) + " ", strings.Repeat("b", 249) + strings.Repeat(" ", 60)} {
		if _, err := consume(tx, name, "orders", 0, 1); err == nil || !strings.Contains(err.Error(), "no space at its end") {
			t.Errorf("consumer %q: %v", name, err)
		}
	}
	if _, err := consume(tx, strings.Repeat("b", 249), "orders", 0, 1); err != nil {
		t.Error(err)
	}
}

// Two transactions of one consumer follow each other, also if the second one began before the first
// one ended.
func TestConsumersTakeTurnsUnderSnapshotIsolation(t *testing.T) {
	r := latin1(t)
	r.insert("orders", "k", true, "0", "1", "2")
	r.move()
	r.events("orders", 3)
	partition := 0
	if n, err := read(r.db, "orders", 1, 0, 10); err != nil {
		t.Fatal(err)
	} else if len(n) > 0 {
		partition = 1
	}
	begin := func() *sql.Tx {
		tx, err := r.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		var topics int
		if err := tx.QueryRow("SELECT count(*) FROM weir_state").Scan(&topics); err != nil { // its snapshot
			t.Fatal(err)
		}
		return tx
	}
	var txs []*sql.Tx
	for range 3 {
		txs = append(txs, begin())
	}
	for i, tx := range txs {
		events, err := consume(tx, "billing", "orders", partition, 1)
		if err != nil || len(events) != 1 {
			t.Fatalf("transaction %d consumes %v, %v", i, events, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if !r.isMariaDB() {
		return
	}
	var setting string
	if err := r.db.QueryRow("SELECT @@session.innodb_snapshot_isolation").Scan(&setting); err != nil || setting != "1" {
		t.Errorf("the program's own setting is %s, %v", setting, err)
	}
}

// The hour when summer time ends comes twice.
func TestTheTimeOfAnEventDoesNotFollowATimeZone(t *testing.T) {
	t.Setenv("TZ", "Europe/Berlin")
	r := newRig(t, mytest.Start(t).URL())
	for _, at := range []time.Time{time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC)} {
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{"DELETE FROM weir_inbox", fmt.Sprint("SET timestamp = ", at.Unix()), "CALL weir_publish('orders', 'k', 'v')", "SET timestamp = DEFAULT"} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		var got int64
		if err := conn.QueryRowContext(t.Context(), "SELECT published_at FROM weir_inbox").Scan(&got); err != nil || got != at.UnixMilli() {
			t.Errorf("at %v the event's time is %d, %v; want %d", at, got, err, at.UnixMilli())
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
