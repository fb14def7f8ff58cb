package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	_ "modernc.org/sqlite"
)

// openRows publishes by rows of weir_inbox, on MariaDB and SQLite. Markers in the same transaction tell what was committed.
func openRows(w *world, _ string, random *rand.Rand) (send, error) {
	db, err := w.openDB()
	if err != nil {
		return nil, err
	}
	w.atEnd(db.Close)
	publish := "INSERT INTO weir_inbox (topic, event_value) VALUES (?, ?)"
	if w.mariadb != nil {
		publish = "CALL weir_publish(?, NULL, ?)"
	}
	return func(ctx context.Context, records []*record) (outcome, []place) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientPatience)
		defer cancel()
		undone := random.IntN(4) == 0
		hold := time.Duration(random.IntN(4)/3) * time.Duration(random.IntN(100)) * time.Millisecond
		if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS markers (value VARCHAR(200) NOT NULL)"); err != nil {
			return refused, nil
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return refused, nil
		}
		defer tx.Rollback()
		for _, r := range records {
			if _, err := tx.ExecContext(ctx, publish, r.topic, []byte(r.value)); err != nil {
				return refused, nil
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO markers VALUES (?)", r.value); err != nil {
				return refused, nil
			}
		}
		pause(ctx, hold)
		if undone {
			return refused, nil
		}
		if err := tx.Commit(); err != nil {
			return unknown, nil // the markers will tell
		}
		return done, nil
	}, nil
}

// openDB opens the database of the store as any program could.
func (w *world) openDB() (*sql.DB, error) {
	if w.mariadb != nil {
		return w.mariadb.connect()
	}
	file, is := strings.CutPrefix(w.url, "sqlite:")
	if !is {
		return nil, fmt.Errorf("%s has no rows", w.url)
	}
	return sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)&_txlock=immediate")
}

// rowsMoved waits until what transactions committed is in the log, and returns the markers.
func (w *world) rowsMoved(ctx context.Context) (markers []string, err error) {
	db, err := w.openDB()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for end := time.Now().Add(drainMax); ; pause(ctx, 100*time.Millisecond) {
		var rows int
		switch err := db.QueryRowContext(ctx, "SELECT count(*) FROM weir_inbox").Scan(&rows); {
		case err == nil && rows == 0:
			found, err := db.QueryContext(ctx, "SELECT value FROM markers")
			if err != nil {
				if strings.Contains(err.Error(), "markers") { // nobody has published yet
					err = nil
				}
				return nil, err
			}
			defer found.Close()
			for found.Next() {
				var value string
				if err := found.Scan(&value); err != nil {
					return nil, err
				}
				markers = append(markers, value)
			}
			return markers, found.Err()
		case time.Now().After(end):
			return nil, errors.Join(fmt.Errorf("after %v weir_inbox still has %d rows", drainMax, rows), err)
		}
	}
}
