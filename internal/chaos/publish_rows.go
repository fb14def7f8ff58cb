package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// withInbox is an engine in whose transactions events are published as rows of weir_inbox.
type withInbox interface {
	engine
	inbox() (inbox, error)
}

// inbox is a database with such a table.
type inbox struct {
	db    *sql.DB
	table string
	// publish takes a topic and a value; mark takes the value of a marker.
	publish, mark string
}

// openRows publishes by rows of weir_inbox, on MariaDB, SQLite and every shard. Markers in the same
// transaction tell what was committed.
func openRows(w *world, _ string, random *rand.Rand) (send, error) {
	var all []inbox
	for _, e := range enginesThat[withInbox](w) {
		in, err := e.inbox()
		if err != nil {
			return nil, err
		}
		w.atEnd(in.db.Close)
		all = append(all, in)
	}
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		n := random.IntN(len(all))
		if !slices.Contains(stayingTopics, records[0].Topic) {
			n = 0 // other shards do not know the topics: a row that is committed there may find its topic gone, or a namesake
		}
		return all[n].send(ctx, random, records)
	}, nil
}

func (in inbox) send(ctx context.Context, random *rand.Rand, records []*judge.Record) (judge.Outcome, []judge.Place) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientPatience)
	defer cancel()
	undone := random.IntN(4) == 0
	hold := time.Duration(random.IntN(4)/3) * time.Duration(random.IntN(100)) * time.Millisecond
	if _, err := in.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS markers (value VARCHAR(200) NOT NULL)"); err != nil {
		return judge.Refused, nil
	}
	tx, err := in.db.BeginTx(ctx, nil)
	if err != nil {
		return judge.Refused, nil
	}
	defer tx.Rollback()
	for _, r := range records {
		if _, err := tx.ExecContext(ctx, in.publish, r.Topic, []byte(r.Value)); err != nil {
			return judge.Refused, nil
		}
		if _, err := tx.ExecContext(ctx, in.mark, r.Value); err != nil {
			return judge.Refused, nil
		}
	}
	pause(ctx, hold)
	if undone {
		return judge.Refused, nil
	}
	if err := tx.Commit(); err != nil {
		return judge.Unknown, nil // the markers will tell
	}
	return judge.Done, nil
}

// rowsMoved waits until what transactions committed is in the log, and returns the markers.
func (w *world) rowsMoved(ctx context.Context) (markers []string, err error) {
	for _, e := range enginesThat[withInbox](w) {
		of, err := rowsMovedFrom(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.address(), err)
		}
		markers = append(markers, of...)
	}
	return markers, nil
}

func rowsMovedFrom(ctx context.Context, e withInbox) (markers []string, err error) {
	in, err := e.inbox()
	if err != nil {
		return nil, err
	}
	defer in.db.Close()
	for end := time.Now().Add(drainMax); ; pause(ctx, 100*time.Millisecond) {
		var rows int
		switch err := in.db.QueryRowContext(ctx, "SELECT count(*) FROM "+in.table).Scan(&rows); {
		case err == nil && rows == 0:
			found, err := in.db.QueryContext(ctx, "SELECT value FROM markers")
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
