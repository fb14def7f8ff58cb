package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/weir-log/weir/internal/mytest"
)

// mariadb is a MariaDB of the run's own.
type mariadb struct{ server *mytest.Server }

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

// crash kills the server, and starts it again.
func (m *mariadb) crash() error {
	m.server.Kill()
	return m.server.Recover()
}

// interrupt cancels the statements, or ends the sessions, of a part of those that are connected.
func (m *mariadb) interrupt(ctx context.Context, random *rand.Rand, terminate bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := m.connect()
	if err != nil {
		return err
	}
	defer db.Close()
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
}
