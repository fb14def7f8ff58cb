package load

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

// client is a store whose database has functions for programs.
type client interface{ Client() *sql.DB }

// sqlOf is the SQL of the database under a library's store; nil: it has none.
func sqlOf(l *Library, store eventlog.Store, postgres, rows bool) *sqlTopic {
	database, is := eventlog.As[client](store)
	switch {
	case is && postgres:
		return &sqlTopic{l, database.Client(), inPostgres{}}
	case is && rows:
		return &sqlTopic{l, database.Client(), inMySQL{}}
	}
	return nil
}

// sqlTopic publishes with SQL in transactions, and consumes exactly once: positions are committed
// in the transactions that read.
type sqlTopic struct {
	*Library
	db      *sql.DB
	dialect dialect
}

// dialect is how a database publishes and reads.
type dialect interface {
	// publish publishes events with the writer's key in a transaction.
	publish(ctx context.Context, tx *sql.Tx, topic string, writer int, events [][]byte) error
	// consume returns events of a partition that a consumer has not handled, and counts them as
	// handled if the transaction commits.
	consume(ctx context.Context, tx *sql.Tx, consumer, topic string, partition int) ([]sqlEvent, error)
	// read passes on all events of a partition.
	read(ctx context.Context, db *sql.DB, topic string, partition int, each func([]byte) error) error
}

func (p *sqlTopic) topic() string { return p.names + "-sql" }

func (p *sqlTopic) Traits() Traits {
	return Traits{Name: "SQL", Where: "topic and consumer " + p.topic(), Ordered: true, Audited: true}
}

func (p *sqlTopic) Create(ctx context.Context) error {
	return p.log.EnsureTopic(ctx, weir.Topic{Name: p.topic(), Partitions: partitions})
}

func (p *sqlTopic) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	return Wrote{}, inTransaction(ctx, p.db, func(tx *sql.Tx) error { return p.dialect.publish(ctx, tx, p.topic(), writer, events) })
}

// inTransaction runs statements in a transaction. Its error is Refused if certainly nothing was
// committed.
func inTransaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return Refused(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // a connection that is gone rolls back, too
		return Refused(err)
	}
	return committed(tx.Commit())
}

// committed is the error of a COMMIT: Refused if the server said that it did not.
func committed(err error) error {
	var postgres *pgconn.PgError
	var maria *mysql.MySQLError
	switch {
	case errors.As(err, &postgres) && postgres.Severity == "ERROR":
		return Refused(err)
	case errors.As(err, &maria) && maria.Number == deadlock:
		return Refused(err)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrTxDone): // it was not sent
		return Refused(err)
	}
	return err
}

// deadlock is the number of MySQL's error after which a transaction was rolled back.
const deadlock = 1213

func (p *sqlTopic) Read(ctx context.Context, to *Reader) error {
	for ctx.Err() == nil {
		came := false
		for i := range partitions {
			n, err := p.consume(ctx, to, i)
			if err != nil {
				return err
			}
			came = came || n > 0
		}
		if err := to.Flush(); err != nil {
			return err
		}
		if !came {
			pause(ctx)
		}
	}
	return nil
}

// consume handles what comes next in a partition, in one transaction.
func (p *sqlTopic) consume(ctx context.Context, to *Reader, partition int) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	events, err := p.dialect.consume(ctx, tx, p.topic(), p.topic(), partition)
	if err != nil {
		return 0, err
	}
	list := make([][]byte, len(events))
	for i, e := range events { // before the commit: if its answer is lost, they do not come again
		list[i] = e.value
		if err := to.Got(e.value); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return len(events), to.Acked(list...)
}

func (p *sqlTopic) Audit(ctx context.Context, to *Reader) error {
	for i := range partitions {
		if err := p.dialect.read(ctx, p.db, p.topic(), i, to.Got); err != nil {
			return err
		}
	}
	return to.Flush()
}

func (p *sqlTopic) Remove(ctx context.Context) error {
	return errors.Join(
		gone(p.log.DeleteTopic(ctx, p.topic()), weir.ErrUnknownTopic),
		gone(p.log.DeleteGroup(ctx, p.topic()), weir.ErrUnknownGroup),
	)
}

// sqlEvent is a row of an event.
type sqlEvent struct {
	value []byte
	next  int64 // the offset to read from next
}

// sqlPage is how many events are read in one call.
const sqlPage = 1000

// sqlEvents reads rows of events, whose columns are named as in docs/sql.md.
func sqlEvents(rows *sql.Rows, err error) (list []sqlEvent, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var value []byte
		var offset, records int64
		row := make([]any, len(columns))
		for i, name := range columns {
			switch name {
			case "value", "event_value":
				row[i] = &value
			case "offset", "event_offset":
				row[i] = &offset
			case "records":
				row[i] = &records
			default:
				row[i] = new(any)
			}
		}
		if err := rows.Scan(row...); err != nil {
			return nil, err
		}
		list = append(list, sqlEvent{value, offset + records})
	}
	return list, rows.Err()
}

// readPages passes on the events of a partition, page by page.
func readPages(page func(from int64) ([]sqlEvent, error), each func([]byte) error) error {
	for from := int64(0); ; {
		events, err := page(from)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if err := each(e.value); err != nil {
				return err
			}
			from = e.next
		}
	}
}

// inPostgres publishes with weir.publish_all, and commits offsets with weir.commit_offset.
type inPostgres struct{}

func (inPostgres) publish(ctx context.Context, tx *sql.Tx, topic string, writer int, events [][]byte) error {
	_, err := tx.ExecContext(ctx, `SELECT weir.publish_all($1::text, $2::bytea[], $3::bytea[])`, topic, keysOf(writer, events), events)
	return err
}

// postgresEvents reads a page of a partition.
const postgresEvents = `SELECT value, "offset", records FROM weir.events($1, from_offset => $2, partition => $3, max_events => $4)`

func (inPostgres) consume(ctx context.Context, tx *sql.Tx, consumer, topic string, partition int) ([]sqlEvent, error) {
	var from int64
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(weir.position($1, $2, $3), 0)`, consumer, topic, partition).Scan(&from); err != nil {
		return nil, err
	}
	events, err := sqlEvents(tx.QueryContext(ctx, postgresEvents, topic, from, partition, sqlPage))
	if err != nil || len(events) == 0 {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `SELECT weir.commit_offset($1, $2, $3, $4, from_offset => $5)`, consumer, topic, partition, events[len(events)-1].next, from)
	return events, err
}

func (inPostgres) read(ctx context.Context, db *sql.DB, topic string, partition int, each func([]byte) error) error {
	return readPages(func(from int64) ([]sqlEvent, error) {
		return sqlEvents(db.QueryContext(ctx, postgresEvents, topic, from, partition, sqlPage))
	}, each)
}

// inMySQL publishes with weir_publish, and consumes with weir_consume.
type inMySQL struct{}

func (inMySQL) publish(ctx context.Context, tx *sql.Tx, topic string, writer int, events [][]byte) error {
	for _, e := range events {
		if _, err := tx.ExecContext(ctx, `CALL weir_publish(?, ?, ?)`, topic, []byte(keyOf(writer)), e); err != nil {
			return err
		}
	}
	return nil
}

func (inMySQL) consume(ctx context.Context, tx *sql.Tx, consumer, topic string, partition int) ([]sqlEvent, error) {
	return sqlEvents(tx.QueryContext(ctx, `CALL weir_consume(?, ?, ?, ?)`, consumer, topic, partition, sqlPage))
}

func (inMySQL) read(ctx context.Context, db *sql.DB, topic string, partition int, each func([]byte) error) error {
	return readPages(func(from int64) ([]sqlEvent, error) {
		return sqlEvents(db.QueryContext(ctx, `CALL weir_events(?, ?, ?, ?)`, topic, partition, from, sqlPage))
	}, each)
}
