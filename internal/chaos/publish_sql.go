package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/judge"
)

// openSQL publishes with weir.publish: the first half of the records, then a savepoint with events
// that nobody knows (they are rolled back, and whoever reads one has read a phantom), then the
// second half. Markers in the same transaction tell what was committed.
func openSQL(w *world, session string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientPatience)
		defer cancel()
		undone := random.IntN(4) == 0
		hold := time.Duration(random.IntN(4)/3) * time.Duration(random.IntN(300)) * time.Millisecond
		err := pgx.BeginFunc(ctx, w.sql, func(tx pgx.Tx) error {
			for i, r := range records {
				if i == len(records)/2 {
					if err := publishAndUndo(ctx, tx, session, r.Topic); err != nil {
						return err
					}
				}
				if _, err := tx.Exec(ctx, `SELECT weir.publish($1, NULL::text, $2::text)`, r.Topic, r.Value); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, `INSERT INTO markers SELECT unnest($1::text[])`, valuesOf(records)); err != nil {
				return err
			}
			pause(ctx, hold)
			if undone {
				return errUndo
			}
			return nil
		})
		switch {
		case err == nil:
			return judge.Done, nil
		case errors.Is(err, errUndo):
			return judge.Refused, nil
		}
		return judge.Unknown, nil // the markers will tell
	}, nil
}

// publishAndUndo publishes within a savepoint, and rolls back to it.
func publishAndUndo(ctx context.Context, tx pgx.Tx, session, topic string) error {
	if _, err := tx.Exec(ctx, `SAVEPOINT here`); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT weir.publish($1, NULL::text, $2::text)`, topic, session+": rolled back to a savepoint"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `ROLLBACK TO SAVEPOINT here`)
	return err
}
