package inbox

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/mysql"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/sqlite"
)

//go:embed sql
var sqlFiles embed.FS

// Door is the table weir_inbox of a store, or of one shard of a store. Its methods may be called
// concurrently.
type Door struct {
	database
	name  string // of the inbox
	woken chan struct{}
}

// database is what the door needs of a store.
//
// Rows are read in an incarnation of the database, which queryIn returns (eventlog.Incarnation). In
// another one, such as that of a replica that took over, an entry may be lost that was acknowledged
// meanwhile, and ids may belong to other rows. So what changes rows that were read takes their
// incarnation as in. If the database is in another one, the error is eventlog.ErrRewound, and
// nothing is changed.
type database interface {
	// table returns the name of a table of the door in statements, and exists the statement that
	// returns 1 if there is such a table, else 0.
	table(name string) string
	exists(name string) string
	// query calls each with each row of a statement that changes nothing. Columns are int64,
	// []byte, string or nil.
	query(ctx context.Context, each func(row []any) error, statement string) error
	// queryIn is query, and returns the incarnation in which the rows are, also if each failed.
	queryIn(ctx context.Context, each func(row []any) error, statement string) (in string, err error)
	// remove deletes rows of the inbox, and their targets; missing ones are ignored. A row whose
	// time is none of these is another one that got the id later, and stays. With no times all rows
	// with the ids are deleted: an older weir published them, and did not note their times.
	remove(ctx context.Context, in string, ids, times []int64) error
	// refuse moves a row to weir_inbox_refused, in one transaction.
	refuse(ctx context.Context, in string, id int64, reason string) error
	// aim, of a shard, adds targets for rows that have none. It adds none for a row that is gone:
	// another one may get its id. When aim returns, a crash of the database can no longer undo the
	// targets, nor what was read before; so it is also called with no targets to add.
	aim(ctx context.Context, in string, targets []target) error
	// removeTargets, of a shard, deletes the targets of rows that are gone.
	removeTargets(ctx context.Context) error
	// install creates the tables, and what checks and inserts rows.
	install(ctx context.Context, name string, logger *slog.Logger) error
}

// Attach opens the door of a store, and creates its tables; nil if the store is of another kind. On
// a store made of shards it creates the tables of each shard that answers, and returns nil: see
// NewShardMovers. Call it before the log is opened, because a new table may look like another store
// in the place of this one.
func Attach(ctx context.Context, store eventlog.Store, logger *slog.Logger) (*Door, error) {
	if set, is := eventlog.As[eventlog.Sharded](store); is {
		attachShards(ctx, set, logger)
		return nil, nil
	}
	d := &Door{database: databaseOf(store, noSet), woken: make(chan struct{}, 1)}
	if d.database == nil {
		return nil, nil
	}
	if err := d.open(ctx, logger); err != nil {
		return nil, err
	}
	return d, nil
}

// open creates the tables, and reads the inbox's name.
func (d *Door) open(ctx context.Context, logger *slog.Logger) error {
	err := d.install(ctx, rand.Text(), logger)
	if err == nil {
		err = d.query(ctx, func(row []any) error {
			d.name = text(row[0])
			return nil
		}, "SELECT name FROM "+d.table("weir_inbox_identity")+" WHERE one = 1")
	}
	if err != nil {
		return fmt.Errorf("create the table weir_inbox: %w", err)
	}
	return nil
}

// incarnation returns the incarnation that the database is in. Call it before reading a key by
// which rows are changed: see database.
func (d *Door) incarnation(ctx context.Context) (in string, err error) {
	return d.queryIn(ctx, func([]any) error { return nil }, "SELECT 1")
}

// noSet stands for the number of a shard: the store is not one.
const noSet = -1

// databaseOf returns the tables of a store, or of a shard; nil if stores of its kind have none. A
// PostgreSQL store has them only if it is a shard: door/sqlfn serves any other.
func databaseOf(store eventlog.Store, shard int) database {
	if s, is := eventlog.As[*mysql.Store](store); is {
		return mysqlTables{s.Session(), shard}
	}
	if s, is := eventlog.As[*sqlite.Store](store); is {
		return sqliteTables{s, shard}
	}
	if s, is := eventlog.As[*postgres.Store](store); is && shard != noSet {
		return postgresTables{s}
	}
	return nil
}

// Waiting counts the rows of a store's inboxes that are not moved into its log; 0 if the store has
// none. It needs no Attach.
func Waiting(ctx context.Context, store eventlog.Store) (rows int64, err error) {
	databases := []database{databaseOf(store, noSet)}
	if set, is := eventlog.As[eventlog.Sharded](store); is {
		databases = nil
		for n := range set.Shards() {
			shard, err := set.ShardStore(n)
			if err != nil {
				return 0, err
			}
			databases = append(databases, databaseOf(shard, n))
		}
	}
	for _, db := range databases {
		if db == nil {
			continue
		}
		var there int64
		err := db.query(ctx, func(row []any) error {
			there = row[0].(int64)
			return nil
		}, db.exists("weir_inbox"))
		if err == nil && there > 0 {
			err = db.query(ctx, func(row []any) error {
				rows += row[0].(int64)
				return nil
			}, "SELECT count(*) FROM "+db.table("weir_inbox"))
		}
		if err != nil {
			return 0, fmt.Errorf("count the rows of weir_inbox: %w", err)
		}
	}
	return rows, nil
}

// Databases says in which databases of a store made of shards transactions can publish: in a
// PostgreSQL with its functions, in others with Insert. A shard that has not answered since the
// store was opened counts as neither.
func Databases(store eventlog.Store) (onPostgres, onOthers bool) {
	set, is := eventlog.As[eventlog.Sharded](store)
	if !is {
		return false, false
	}
	for n := range set.Shards() {
		shard, err := set.ShardStore(n)
		if err != nil {
			continue
		}
		switch databaseOf(shard, n).(type) {
		case nil:
		case postgresTables:
			onPostgres = true
		default:
			onOthers = true
		}
	}
	return onPostgres, onOthers
}

// Insert is the statement that publishes events in a caller's transaction, with seven arguments for
// each: topic, the topic's id in hexadecimal digits, key, value, headers as a JSON object,
// partition and time. All but topic and time may be nil.
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

// refusedColumns returns what to select from rows of weir_inbox, which must have the alias i, for
// columns of weir_inbox_refused. If there is a refused row with that id already, it is another row,
// because a row is refused and deleted at once: the new one gets a negative id.
func refusedColumns(schema string) string {
	refused := schema + "weir_inbox_refused r"
	return "CASE WHEN EXISTS (SELECT 1 FROM " + refused + " WHERE r.id = i.id) THEN (SELECT CASE WHEN min(r.id) < 0 THEN min(r.id) - 1 ELSE -1 END FROM " + refused + ") ELSE id END" +
		strings.TrimPrefix(columns, "id")
}

func text(column any) string {
	switch v := column.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	}
	return ""
}
