package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/weir-log/weir/store/storerow"
)

//go:embed tables
var tables embed.FS

const (
	migrationLock = "weir migration" // with the database's name: a lock belongs to the whole server
	guards        = 64               // rows of weir_guard for keys that do not exist
)

// migrate runs the migrations that the database does not have yet. Processes that open it
// concurrently take turns. existing: the database must have weir's tables already.
func (s *Store) migrate(ctx context.Context, existing bool) error {
	conn, err := s.commits.Conn(ctx)
	if err != nil {
		return readFailed(err)
	}
	defer conn.Close()
	newest := newest()

	const version = "SELECT coalesce(max(version), 0) FROM weir_migration"
	has := 0
	if err := conn.QueryRowContext(ctx, version).Scan(&has); err != nil && code(err) != errNoTable {
		return readFailed(err)
	}
	if has == newest {
		return nil
	}
	if has > newest {
		return tooNew(has, newest)
	}
	if has == 0 && existing {
		return errors.New("the database has no tables of weir, and must have them: correct the URL, or restore a backup")
	}
	var got int
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(LEFT(CONCAT(?, ' ', DATABASE()), 64), 25)", migrationLock).Scan(&got); err != nil || got != 1 {
		return fmt.Errorf("%w: another process is creating the tables: %w", errBusy, err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(LEFT(CONCAT(?, ' ', DATABASE()), 64))", migrationLock)
	if _, err := conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS weir_migration (version INT NOT NULL PRIMARY KEY) ENGINE=InnoDB"); err != nil {
		return fmt.Errorf("create the table weir_migration: %w", err)
	}
	if err := conn.QueryRowContext(ctx, version).Scan(&has); err != nil {
		return readFailed(err)
	}
	if has > newest {
		return tooNew(has, newest)
	}
	if has == newest { // another process has done it
		return nil
	}
	return storerow.Upgrade(s.logger, !s.noUpgrade, "tables", has, newest, func() error { return runFrom(ctx, conn, has) })
}

// runFrom runs the migrations after a version.
func runFrom(ctx context.Context, conn *sql.Conn, has int) error {
	for _, name := range migrations() {
		if number(name) <= has {
			continue
		}
		text, err := tables.ReadFile(name)
		if err != nil {
			return err
		}
		// DDL commits by itself, so a migration that was interrupted is run again: what is there
		// already is left as it is.
		for statement := range strings.SplitSeq(string(text), ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := conn.ExecContext(ctx, statement); err != nil && code(err) != errTableExists {
				return fmt.Errorf("migration %s: %w", name, err)
			}
		}
		if _, err := conn.ExecContext(ctx, "INSERT IGNORE INTO weir_guard WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < ?) SELECT id FROM n", guards); err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO weir_migration VALUES (?)", number(name)); err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return nil
}

// migrations lists the files in order.
func migrations() []string {
	names, err := fs.Glob(tables, "tables/*.sql")
	if err != nil {
		panic(err) // the pattern is right
	}
	slices.Sort(names)
	return names
}

// newest is the newest version of the tables that this binary knows.
var newest = sync.OnceValue(func() int { return number(slices.Max(migrations())) })

func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "tables/")[:3])
	return n
}

func tooNew(has, newest int) error {
	return storerow.Newer("tables", has, newest)
}

// code returns the server's error number, or 0 if the error is not the server's.
func code(err error) uint16 {
	var reported *mysql.MySQLError
	if errors.As(err, &reported) {
		return reported.Number
	}
	return 0
}
