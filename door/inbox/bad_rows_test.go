package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/sqlite"
)

// unpublishable are values of columns that make a row one that can never be published. What the
// database itself refuses is no fault of the mover; some it converts, see converted.
var unpublishable = map[string][]string{
	"published_at":     {"1769846400000000", "9223372036854775807", "-9223372036854775808", "'2026-01-31 08:00:00'", "1700000000000.5", "x'31'"},
	"partition_number": {"0.5", "'one'", "x'31'", "7", "-1", "4294967296"},
	"topic_id":         {"'no id'", "7", "x'ff'", "''''"},
	"headers":          {"'{'", "'[]'", "'7'", "x'7bff'", "'{\"a\": \"1\"} more'"},
	"topic":            {"'nobody'", "''", "x'ff'", "7", "'__weir_later'"},
	"event_value":      {"NULL"}, // without a key
}

// converted are values that MariaDB, MySQL and PostgreSQL make whole numbers of.
var converted = []string{"0.5", "1700000000000.5", "x'31'"}

// badRows inserts rows of which only one column is wrong, between good ones, and returns how many
// of each are there. Nothing but the table itself may refuse a row: a trigger that is there later,
// or was dropped, changes nothing for the mover.
func badRows(t *testing.T, kind string, exec func(statement string) error) (good, bad int) {
	t.Helper()
	insert := func(column, value string) error {
		row := map[string]string{"topic": "'orders'", "event_value": "'good'", "published_at": "1700000000000", "headers": "NULL", "partition_number": "NULL", "topic_id": "NULL"}
		if column != "" {
			row[column] = value
		}
		return exec(fmt.Sprintf("INSERT INTO weir_inbox (topic, topic_id, event_value, headers, partition_number, published_at) VALUES (%s, %s, %s, %s, %s, %s)",
			row["topic"], row["topic_id"], row["event_value"], row["headers"], row["partition_number"], row["published_at"]))
	}
	for column, values := range unpublishable {
		for _, value := range values {
			if kind != "sqlite" && slices.Contains(converted, value) {
				continue
			}
			if insert(column, value) == nil {
				bad++
			}
			if err := insert("", ""); err != nil {
				t.Fatal(err)
			}
			good++
		}
	}
	if bad == 0 {
		t.Fatal("no bad row was inserted")
	}
	return good, bad
}

func TestABadRowIsRefusedAndHoldsNobodyUp(t *testing.T) {
	onEach(t, func(r *rig) {
		kind, _, _ := strings.Cut(r.url, ":")
		if kind == "sqlite" {
			for _, trigger := range []string{"check", "types", "topic"} {
				if _, err := r.db.Exec("DROP TRIGGER IF EXISTS weir_inbox_" + trigger); err != nil {
					r.Fatal(err)
				}
			}
		}
		good, bad := badRows(r.T, kind, func(statement string) error { _, err := r.db.Exec(statement); return err })
		r.move()
		r.events("orders", good)
		if n := r.count("weir_inbox_refused"); n != bad {
			r.Errorf("%d rows are in weir_inbox_refused, want %d", n, bad)
		}
		var without int
		if err := r.db.QueryRow("SELECT count(*) FROM weir_inbox_refused WHERE reason = ''").Scan(&without); err != nil || without > 0 {
			r.Errorf("%d rows have no reason; %v", without, err)
		}
	})
}

func TestABadRowOfAShardIsRefusedAndHoldsNobodyUp(t *testing.T) {
	r := newSetRig(t, "mysql", "sqlite", "postgres")
	r.opened()
	for _, trigger := range []string{"check", "types"} {
		if _, err := r.dbs[1].Exec("DROP TRIGGER IF EXISTS weir_inbox_" + trigger); err != nil {
			t.Fatal(err)
		}
	}
	all := 0
	refused := make([]int, len(r.kinds))
	for n, kind := range r.kinds {
		good, bad := badRows(t, kind, func(statement string) error {
			if kind == "postgres" {
				statement = strings.Replace(statement, "weir_inbox", "weir.weir_inbox", 1)
			}
			_, err := r.dbs[n].Exec(statement)
			return err
		})
		all += good
		refused[n] = bad
	}
	r.movers()
	r.empty()
	if got := r.found(all); len(got[""]) != all || len(got) != 1 {
		t.Errorf("%d events were published, want %d", len(got[""]), all)
	}
	for n, want := range refused {
		if got := r.rows(n, "weir_inbox_refused"); got != want {
			t.Errorf("shard %d: %d rows are in weir_inbox_refused, want %d", n, got, want)
		}
	}
}

// A number is published as its text, as MariaDB converts it: SQLite keeps it as a number.
func TestNumbersOfSQLArePublishedAsText(t *testing.T) {
	want := `[1:7 12:2.5 13:a 14:b]`
	insert := "INSERT INTO weir_inbox (topic, event_key, event_value, published_at) VALUES ('orders', 1, 7, 5), ('orders', 12, 2.5, 5), ('orders', '13', 'a', 5), ('orders', 14, 'b', 5)"
	list := func(found map[string][]string) string {
		var all []string
		for _, key := range []string{"1", "12", "13", "14"} {
			for _, value := range found[key] {
				all = append(all, key+":"+value)
			}
		}
		return fmt.Sprint(all)
	}
	onEach(t, func(r *rig) {
		if _, err := r.db.Exec(insert); err != nil {
			r.Fatal(err)
		}
		r.move()
		if got := list(r.events("orders", 4)); got != want {
			r.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("shard", func(t *testing.T) {
		r := newSetRig(t, "sqlite", "sqlite")
		r.opened()
		if _, err := r.dbs[1].Exec(insert); err != nil {
			t.Fatal(err)
		}
		r.movers()
		r.empty()
		if got := list(r.found(4)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// The issuer of a trigger hears at once what the mover would refuse later.
func TestSQLiteRefusesValuesOfAnotherType(t *testing.T) {
	for name, newDB := range map[string]func(t *testing.T) func(string) error{
		"store": func(t *testing.T) func(string) error {
			r := newRig(t, everystore.URL(t, "sqlite"))
			return func(statement string) error { _, err := r.db.Exec(statement); return err }
		},
		"shard": func(t *testing.T) func(string) error {
			r := newSetRig(t, "sqlite", "sqlite")
			r.opened()
			return func(statement string) error { _, err := r.dbs[1].Exec(statement); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			exec := newDB(t)
			for column, values := range map[string][]string{
				"partition_number": {"0.5", "'one'", "x'31'"},
				"published_at":     {"1769846400000000", "'2026-01-31 08:00:00'", "1700000000000.5", "x'31'", "NULL", "-2"},
			} {
				for _, value := range values {
					err := exec("INSERT INTO weir_inbox (topic, event_value, " + column + ") VALUES ('orders', 'v', " + value + ")")
					if err == nil || !strings.Contains(err.Error(), "weir: "+column) {
						t.Errorf("%s %s: %v", column, value, err)
					}
				}
			}
			if err := exec("INSERT INTO weir_inbox (topic, event_value, partition_number, published_at) VALUES ('orders', 'v', '1', '1700000000000')"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The inbox of an older weir has fewer triggers.
func TestAnOlderInboxGetsItsTriggers(t *testing.T) {
	url := everystore.URL(t, "sqlite")
	r := newRig(t, url)
	if _, err := r.db.Exec("DROP TRIGGER weir_inbox_types; DROP TRIGGER weir_inbox_keyed"); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(t.Context(), r.store, r.logger()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.Exec("INSERT INTO weir_inbox (topic, event_value, partition_number) VALUES ('orders', 'v', 0.5)"); err == nil {
		t.Error("a partition number of 0.5 was taken")
	}
	if n := r.count("sqlite_schema WHERE type = 'trigger'"); n != 4 {
		t.Errorf("it has %d triggers, want 4", n)
	}
}

// A row can have the id of one that was refused: after a failover that lost the row, for example.
func TestARefusedRowDoesNotReplaceOneWithItsID(t *testing.T) {
	onEach(t, func(r *rig) {
		for n := range 3 {
			if _, err := r.db.Exec(fmt.Sprintf("INSERT INTO weir_inbox (id, topic, topic_id, event_value, published_at) VALUES (5, 'orders', 'no id', '%d', 7)", n)); err != nil {
				r.Fatal(err)
			}
			m := NewMover(r.log, r.door, r.publisher, r.logger(), nil)
			if _, err := m.step(r.Context()); err != nil {
				r.Fatal(err)
			}
		}
		if n, left := r.count("weir_inbox_refused"), r.count("weir_inbox"); n != 3 || left != 0 {
			r.Errorf("%d rows are in weir_inbox_refused and %d in weir_inbox, want 3 and 0", n, left)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		r := newSetRig(t, "postgres", "postgres")
		r.opened()
		for n := range 3 {
			if _, err := r.dbs[1].Exec(fmt.Sprintf("INSERT INTO weir.weir_inbox (id, topic, topic_id, event_value, published_at) OVERRIDING SYSTEM VALUE VALUES (5, 'orders', 'no id', '%d', 7)", n)); err != nil {
				t.Fatal(err)
			}
			m := r.opened()[1]
			if _, err := m.step(t.Context()); err != nil && !errors.Is(err, errLearned) {
				t.Fatal(err)
			}
		}
		if n, left := r.rows(1, "weir_inbox_refused"), r.rows(1, "weir_inbox"); n != 3 || left != 0 {
			t.Errorf("%d rows are in weir_inbox_refused and %d in weir_inbox, want 3 and 0", n, left)
		}
	})
}

// What is not known to pass again refuses the row; an outage of the store never does.
func TestOnlyWhatMayPassIsTriedAgain(t *testing.T) {
	for _, err := range []error{eventlog.ErrUnavailable, eventlog.ErrNoSpace, eventlog.ErrHeld, eventlog.ErrRewound, eventlog.ErrUnsure, eventlog.ErrStale,
		eventlog.ErrNoPartition, eventlog.ErrClosed, eventlog.ErrReadOnly, eventlog.ErrCrowded, t.Context().Err()} {
		if err != nil && !mayPass(fmt.Errorf("publish: %w", err)) {
			t.Errorf("%v refuses a row", err)
		}
	}
	for _, err := range []error{eventlog.ErrUnknownTopic, eventlog.ErrTooLarge, &eventlog.InvalidError{}, errors.New("new")} {
		if mayPass(err) {
			t.Errorf("%v is tried again for good", err)
		}
	}
}

// An older weir made a store of an empty file in UTF-16. In it a text that is cast to bytes is in
// UTF-16, too.
func TestAnInboxInUTF16IsRefused(t *testing.T) {
	url := everystore.URL(t, "sqlite")
	old := program(t, url)
	old.SetMaxOpenConns(1)
	scripts, err := filepath.Glob("../../store/sqlite/migrations/*.sql")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	statements := []string{"PRAGMA encoding = 'UTF-16'"}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		statements = append(statements, string(text))
	}
	for _, s := range append(statements, "PRAGMA application_id = 0x77656972", fmt.Sprint("PRAGMA user_version = ", len(scripts))) {
		if _, err := old.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	opened := everystore.Open(t, url) // it stays readable
	if _, err := Attach(t.Context(), opened, slog.Default()); err == nil || !strings.Contains(err.Error(), "UTF-16le") {
		t.Errorf("the inbox of a store in UTF-16 was opened: %v", err)
	}
	findings, err := sqlite.Examine(t.Context(), strings.TrimPrefix(url, "sqlite:"))
	if err != nil || !slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Name == "encoding" && f.Level == doctor.Bad }) {
		t.Errorf("the doctor finds %+v, %v", findings, err)
	}
}
