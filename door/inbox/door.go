package inbox

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/mysql"
	"github.com/weir-log/weir/store/sqlite"
)

//go:embed sql
var sqlFiles embed.FS

// proceduresVersion is in the comment of the procedures on MariaDB and MySQL. Raise it with each change of one.
const proceduresVersion = "weir 2"

// procedures are those of MariaDB and MySQL, without "weir_". What one calls comes before it.
var procedures = []string{"publish_event", "publish", "read_events", "events", "consume", "partitions"}

// Door is the table weir_inbox of a store. Its methods may be called concurrently.
type Door struct {
	database
	name  string // of the inbox
	woken chan struct{}
}

// database is what the door needs of a store.
type database interface {
	// query calls each with each row of a statement that changes nothing. Columns are int64, []byte, string or nil.
	query(ctx context.Context, each func(row []any) error, statement string) error
	// remove deletes rows of the inbox; missing ones are ignored.
	remove(ctx context.Context, ids []int64) error
	// refuse moves a row to weir_inbox_refused, in one transaction.
	refuse(ctx context.Context, id int64, reason string) error
	// install creates the tables, and what checks and inserts rows.
	install(ctx context.Context, name string, logger *slog.Logger) error
}

// Attach opens the door of a store, and creates its tables; nil if the store is of another kind.
func Attach(ctx context.Context, store eventlog.Store, logger *slog.Logger) (*Door, error) {
	d := &Door{database: databaseOf(store), woken: make(chan struct{}, 1)}
	if d.database == nil {
		return nil, nil
	}
	err := d.install(ctx, rand.Text(), logger)
	if err == nil {
		err = d.query(ctx, func(row []any) error {
			d.name = text(row[0])
			return nil
		}, "SELECT name FROM weir_inbox_identity WHERE one = 1")
	}
	if err != nil {
		return nil, fmt.Errorf("create the table weir_inbox: %w", err)
	}
	return d, nil
}

func databaseOf(store eventlog.Store) database {
	if s, is := eventlog.As[*mysql.Store](store); is {
		return mysqlTables{s.Session()}
	}
	if s, is := eventlog.As[*sqlite.Store](store); is {
		return sqliteTables{s}
	}
	return nil
}

// Waiting counts the rows of a store's inbox that are not moved into its log; 0 if the store has no inbox. It needs no Attach.
func Waiting(ctx context.Context, store eventlog.Store) (rows int64, err error) {
	db := databaseOf(store)
	if db == nil {
		return 0, nil
	}
	there := "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'weir_inbox'"
	if _, is := db.(sqliteTables); is {
		there = "SELECT count(*) FROM sqlite_schema WHERE name = 'weir_inbox'"
	}
	count := func(row []any) error {
		rows = row[0].(int64)
		return nil
	}
	if err = db.query(ctx, count, there); err == nil && rows > 0 {
		err = db.query(ctx, count, "SELECT count(*) FROM weir_inbox")
	}
	if err != nil {
		return 0, fmt.Errorf("count the rows of weir_inbox: %w", err)
	}
	return rows, nil
}

// Insert is the statement that publishes events in a caller's transaction, with seven arguments for each: topic, the topic's id in hexadecimal digits, key, value,
// headers as a JSON object, partition and time. All but topic and time may be nil.
func Insert(events int) string {
	return "INSERT INTO weir_inbox (topic, topic_id, event_key, event_value, headers, partition_number, published_at) VALUES " +
		strings.Repeat("(?, ?, ?, ?, ?, ?, ?), ", events-1) + "(?, ?, ?, ?, ?, ?, ?)"
}

// Wake tells the mover that rows will be committed soon.
func (d *Door) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// script reads one of the door's files.
func script(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// scripts reads the files whose statements are run at each start, in order.
func scripts(dialect string) (all []string) {
	names, err := fs.Glob(sqlFiles, "sql/"+dialect+"/[0-9]*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		all = append(all, script(strings.TrimPrefix(name, "sql/")))
	}
	return all
}

// columns are those of weir_inbox.
const columns = "id, topic, topic_id, event_key, event_value, headers, partition_number, published_at"

func text(column any) string {
	switch v := column.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	}
	return ""
}

type mysqlTables struct{ session *mysql.Session }

func (m mysqlTables) query(ctx context.Context, each func([]any) error, statement string) error {
	return m.session.Query(ctx, each, statement)
}

func (m mysqlTables) remove(ctx context.Context, ids []int64) error {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return m.session.Exec(ctx, "DELETE FROM weir_inbox WHERE id IN (?"+strings.Repeat(",?", len(ids)-1)+")", args...)
}

func (m mysqlTables) refuse(ctx context.Context, id int64, reason string) error {
	return m.session.Exec(ctx, "START TRANSACTION; INSERT IGNORE INTO weir_inbox_refused SELECT "+columns+", ? FROM weir_inbox WHERE id = ?; DELETE FROM weir_inbox WHERE id = ?; COMMIT", reason, id, id)
}

func (m mysqlTables) install(ctx context.Context, name string, logger *slog.Logger) error {
	for _, statement := range scripts("mysql") {
		if err := m.session.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := m.session.Exec(ctx, "INSERT IGNORE INTO weir_inbox_identity VALUES (1, ?)", name); err != nil {
		return err
	}
	return m.installProcedures(ctx, logger)
}

func (m mysqlTables) installProcedures(ctx context.Context, logger *slog.Logger) error {
	adapt, version, err := m.adapted(ctx)
	if err != nil {
		return err
	}
	installed := map[string]string{}
	err = m.query(ctx, func(row []any) error {
		installed[text(row[0])] = text(row[1])
		return nil
	}, "SELECT routine_name, routine_comment FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name LIKE 'weir\\_%'")
	if err != nil {
		return err
	}
	for _, procedure := range procedures {
		if installed["weir_"+procedure] == version {
			continue
		}
		err := m.session.Exec(ctx, "DROP PROCEDURE IF EXISTS weir_"+procedure)
		if err == nil {
			err = m.session.Exec(ctx, adapt.Replace(script("mysql/"+procedure+".sql")))
		}
		if mysql.Refused(err) {
			logger.Warn("the procedures weir_"+strings.Join(procedures, ", weir_")+" cannot be created; programs can only insert into weir_inbox. "+
				"To have them, grant CREATE ROUTINE and ALTER ROUTINE to weir's user, and start weir again", "err", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adapted returns what to replace in the procedures for this server, and the comment that they then have.
func (m mysqlTables) adapted(ctx context.Context) (*strings.Replacer, string, error) {
	// MariaDB has CRC32C since 10.8; MySQL has no such function.
	// @@in_transaction is MariaDB's.
	isolation, changed, outside, version := "tx_isolation", "FALSE", "FALSE", proceduresVersion
	err := m.query(ctx, func(row []any) error {
		if text(row[0]) == "transaction_isolation" { // MySQL 8.0, and MariaDB 11.1
			isolation = "transaction_isolation"
			return nil
		}
		if !strings.Contains(text(row[1]), "MariaDB") {
			return nil
		}
		outside, version = "@@in_transaction = 0 AND @@autocommit", version+" on MariaDB"
		var major, minor int
		_, _ = fmt.Sscanf(text(row[1]), "%d.%d", &major, &minor)
		if major > 10 || major == 10 && minor >= 8 {
			changed, version = "CONV(HEX(SUBSTR(raw, 18, 4)), 16, 10) <> CRC32C(SUBSTR(raw, 22))", version+" with CRC32C"
		}
		return nil
	}, "SHOW VARIABLES WHERE variable_name IN ('version', 'transaction_isolation')")
	version += ", " + isolation
	return strings.NewReplacer(":version", version, ":isolation", isolation, ":changed", changed, ":outside", outside), version, err
}

type sqliteTables struct{ store *sqlite.Store }

func (s sqliteTables) query(ctx context.Context, each func([]any) error, statement string) error {
	return s.store.Query(ctx, each, statement)
}

func (s sqliteTables) remove(ctx context.Context, ids []int64) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	return s.store.Exec(ctx, []string{"DELETE FROM weir_inbox WHERE id IN (SELECT value FROM json_each(?1))"}, string(list))
}

func (s sqliteTables) refuse(ctx context.Context, id int64, reason string) error {
	return s.store.Exec(ctx, []string{
		"INSERT OR IGNORE INTO weir_inbox_refused SELECT " + columns + ", ?2 FROM weir_inbox WHERE id = ?1",
		"DELETE FROM weir_inbox WHERE id = ?1 AND ?2 IS NOT NULL",
	}, id, reason)
}

func (s sqliteTables) install(ctx context.Context, name string, _ *slog.Logger) error {
	there := false
	err := s.query(ctx, func([]any) error {
		there = true
		return nil
	}, "SELECT 1 FROM sqlite_schema WHERE name = 'weir_inbox_topic'")
	if err != nil || there {
		return err // nothing is written: there may be no space
	}
	if err := s.store.Exec(ctx, scripts("sqlite")); err != nil {
		return err
	}
	return s.store.Exec(ctx, []string{"INSERT OR IGNORE INTO weir_inbox_identity VALUES (1, ?)"}, name)
}
