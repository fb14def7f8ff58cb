package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"syscall"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
)

// mariadb is a MariaDB of the run's own.
type mariadb struct {
	server *mytest.Server
	url    string
}

func launchMariaDB(dir string) (*mariadb, error) {
	server, err := mytest.Launch(dir)
	if err != nil {
		return nil, err
	}
	m := &mariadb{server: server}
	if m.url, err = server.Database("weir"); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return m, nil
}

func (m *mariadb) address() string { return m.url }
func (m *mariadb) close() error    { return m.server.Close() }

func (m *mariadb) settings() map[string]string {
	return map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}
}

// do opens the database, as any program could.
func (m *mariadb) do(do func(*sql.DB) error) error {
	db, err := m.connect()
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

func (m *mariadb) connect() (*sql.DB, error) {
	u, err := url.Parse(m.server.Admin())
	if err != nil {
		return nil, err
	}
	return sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/weir", u.Host))
}

func (m *mariadb) exec(ctx context.Context, statement string) error {
	return m.do(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

func (m *mariadb) crash() error {
	m.server.Kill()
	return nil
}

func (m *mariadb) recover(context.Context) error { return m.server.Recover() }

func (m *mariadb) interrupt(ctx context.Context, random *rand.Rand, terminate bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return m.do(func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND command <> 'Daemon' AND db = 'weir'")
		if err != nil {
			return err
		}
		var ids []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		what := "QUERY"
		if terminate {
			what = "CONNECTION"
		}
		for _, id := range ids {
			if random.IntN(3) > 0 {
				_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %s %d", what, id)) // it may have ended
			}
		}
		return nil
	})
}

func (m *mariadb) suspend() (resume func(), err error) {
	m.server.Signal(syscall.SIGSTOP)
	return func() { m.server.Signal(syscall.SIGCONT) }, nil
}

func (m *mariadb) inbox() (inbox, error) {
	db, err := m.connect()
	return inbox{db: db, table: "weir_inbox", publish: "CALL weir_publish(?, NULL, ?)", mark: "INSERT INTO markers VALUES (?)"}, err
}

func (m *mariadb) makeNewer(ctx context.Context) (known, newer string, back func() error, err error) {
	err = m.do(func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT max(version) FROM weir_migration").Scan(&known)
	})
	if err != nil {
		return "", "", nil, err
	}
	set := func(from, to string) error {
		return m.exec(ctx, fmt.Sprintf("UPDATE weir_migration SET version = %s WHERE version = %s", to, from))
	}
	return known, newerTables, func() error { return set(newerTables, known) }, set(known, newerTables)
}

func (m *mariadb) changeByte(ctx context.Context, p eventlog.Partition, base int64, _ string) error {
	return m.exec(ctx, fmt.Sprintf(`UPDATE weir_piece SET bytes = concat(left(bytes, length(bytes) - 2), char(ord(substr(bytes, length(bytes) - 1, 1)) ^ 64), right(bytes, 1))
		WHERE partition_id = %d AND base_offset = %d`, p, base))
}

func (m *mariadb) backup(context.Context) (restore func() error, err error) {
	return m.server.Backup()
}
