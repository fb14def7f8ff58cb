package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // as any program opens the file

	"github.com/weir-log/weir/eventlog"
)

// sqlite is a SQLite file of the run's own.
type sqlite struct{ path string }

func openSQLite(dir string) sqlite { return sqlite{filepath.Join(dir, "weir.db")} }

func (f sqlite) address() string { return "sqlite:" + f.path }
func (f sqlite) close() error    { return nil }

func (f sqlite) settings() map[string]string {
	return map[string]string{"journal_mode": "wal", "synchronous": "full"}
}

// do opens the file as any program could.
func (f sqlite) do(do func(*sql.DB) error) error {
	file, err := sql.Open("sqlite", "file:"+f.path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		return err
	}
	return errors.Join(do(file), file.Close())
}

func (f sqlite) inbox() (inbox, error) {
	db, err := sql.Open("sqlite", f.path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	return inbox{db: db, table: "weir_inbox", publish: "INSERT INTO weir_inbox (topic, event_value) VALUES (?, ?)", mark: "INSERT INTO markers VALUES (?)"}, err
}

func (f sqlite) makeNewer(ctx context.Context) (known, newer string, back func() error, err error) {
	set := func(version string) error {
		return f.do(func(file *sql.DB) error {
			_, err := file.ExecContext(ctx, "PRAGMA user_version = "+version)
			return err
		})
	}
	err = f.do(func(file *sql.DB) error { return file.QueryRowContext(ctx, "PRAGMA user_version").Scan(&known) })
	if err != nil {
		return "", "", nil, err
	}
	return known, newerTables, func() error { return set(known) }, set(newerTables)
}

func (f sqlite) changeByte(ctx context.Context, p eventlog.Partition, base int64, _ string) error {
	return f.do(func(file *sql.DB) error {
		var id int64
		var bytes []byte
		if err := file.QueryRowContext(ctx, `SELECT id, bytes FROM body WHERE id = (SELECT body_id FROM batch WHERE partition_id = ? AND base_offset = ?)`, int64(p), base).Scan(&id, &bytes); err != nil {
			return fmt.Errorf("find the batch at %d of partition %d: %w", base, p, err)
		}
		bytes[len(bytes)-2] ^= 64
		_, err := file.ExecContext(ctx, `UPDATE body SET bytes = ? WHERE id = ?`, bytes, id)
		return err
	})
}

func (f sqlite) backup(ctx context.Context) (restore func() error, err error) {
	copied := filepath.Join(filepath.Dir(f.path), "backup.db")
	err = f.do(func(file *sql.DB) error {
		_, err := file.ExecContext(ctx, "VACUUM INTO ?", copied)
		return err
	})
	return func() error { return os.Rename(copied, f.path) }, err
}
