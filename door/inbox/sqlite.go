package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/weir-log/weir/store/sqlite"
)

type sqliteTables struct {
	store *sqlite.Store
	shard int
}

func (s sqliteTables) table(name string) string { return name }

func (s sqliteTables) exists(name string) string {
	return "SELECT count(*) FROM sqlite_schema WHERE name = '" + name + "'"
}

func (s sqliteTables) query(ctx context.Context, each func([]any) error, statement string) error {
	return s.store.Query(ctx, each, statement)
}

func (s sqliteTables) queryIn(ctx context.Context, each func([]any) error, statement string) (in string, err error) {
	return s.store.QueryIn(ctx, each, statement)
}

func (s sqliteTables) aim(ctx context.Context, in string, targets []target) error {
	list, err := listOf(targets)
	if err != nil {
		return err
	}
	return s.store.ExecIn(ctx, in, []string{
		"INSERT OR IGNORE INTO weir_inbox_target SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?1) WHERE value ->> 0 IN (SELECT id FROM weir_inbox)",
		"UPDATE weir_inbox_barrier SET n = n + 1 WHERE ?1 IS NOT NULL",
	}, list)
}

func (s sqliteTables) removeTargets(ctx context.Context) error {
	return s.store.Exec(ctx, []string{"DELETE FROM weir_inbox_target WHERE id NOT IN (SELECT id FROM weir_inbox)"})
}

func (s sqliteTables) remove(ctx context.Context, in string, ids, times []int64) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	at, err := json.Marshal(times)
	if err != nil {
		return err
	}
	statements := []string{`DELETE FROM weir_inbox WHERE id IN (SELECT value FROM json_each(?1))
		AND (?2 = 'null' OR published_at IN (SELECT value FROM json_each(?2)))`}
	if s.shard != noSet {
		statements = append(statements, "DELETE FROM weir_inbox_target WHERE id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL")
	}
	return s.store.ExecIn(ctx, in, statements, string(list), string(at))
}

func (s sqliteTables) refuse(ctx context.Context, in string, id int64, reason string) error {
	return s.store.ExecIn(ctx, in, []string{
		"INSERT INTO weir_inbox_refused SELECT " + refusedColumns("") + ", ?2 FROM weir_inbox i WHERE id = ?1",
		"DELETE FROM weir_inbox WHERE id = ?1 AND ?2 IS NOT NULL",
	}, id, reason)
}

func (s sqliteTables) install(ctx context.Context, name string, _ *slog.Logger) error {
	encoding := ""
	err := s.query(ctx, func(row []any) error {
		encoding = text(row[0])
		return nil
	}, "PRAGMA encoding")
	if err == nil && encoding != "UTF-8" {
		err = fmt.Errorf("the file keeps text as %s, and events of SQL would get other bytes: copy the store to a new file with weir copy", encoding)
	}
	if err != nil {
		return err
	}
	last := []string{"weir_inbox_topic", "weir_inbox_types"} // what older versions, and this one, create last
	statements := append(scripts("sqlite"), script("sqlite/check.sql"), script("sqlite/topic.sql"))
	if s.shard > 0 {
		statements = append(scripts("sqlite"), script("sqlite/check_elsewhere.sql"))
	}
	if s.shard >= 0 {
		last[0] = "weir_inbox_barrier"
		statements = append(statements, script("sqlite/target.sql"), script("sqlite/barrier.sql"), "INSERT OR IGNORE INTO weir_inbox_barrier VALUES (1, 0)")
	}
	statements = append(statements, script("sqlite/types.sql"))
	if s.shard <= 0 { // the topics are here
		last = append(last, "weir_inbox_keyed")
		statements = append(statements, script("sqlite/keyed.sql"))
	}
	there := 0
	for _, name := range last {
		err := s.query(ctx, func(row []any) error {
			if row[0].(int64) > 0 {
				there++
			}
			return nil
		}, s.exists(name))
		if err != nil {
			return err
		}
	}
	if there == len(last) {
		return nil // nothing is written: there may be no space
	}
	made := 0
	err = s.query(ctx, func(row []any) error {
		made = int(row[0].(int64))
		return nil
	}, s.exists("weir_inbox_identity"))
	if err != nil {
		return err
	}
	if made > 0 {
		made += there
	}
	return s.store.Upgrade("weir_inbox", made, 1+len(last), func() error { return s.create(ctx, name, statements) })
}

// create runs the statements, of which the first creates the table of the identity.
func (s sqliteTables) create(ctx context.Context, name string, statements []string) error {
	if err := s.store.Exec(ctx, statements[:1]); err != nil { // the table of the identity
		return err
	}
	if err := s.store.Exec(ctx, []string{"INSERT OR IGNORE INTO weir_inbox_identity VALUES (1, ?)"}, name); err != nil {
		return err
	}
	return s.store.Exec(ctx, statements[1:])
}
