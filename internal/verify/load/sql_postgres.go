package load

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

// sqlQueue enqueues, claims and acknowledges with the functions of PostgreSQL.
type sqlQueue struct{ libraryQueue }

func (p *sqlQueue) Traits() Traits {
	t := p.libraryQueue.Traits()
	t.Name = "SQL queue"
	return t
}

func (p *sqlQueue) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	return Wrote{}, inTransaction(ctx, p.sql.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT weir.enqueue_all($1::text, $2::bytea[], $3::bytea[])`, p.queue(), keysOf(writer, events), events)
		return err
	})
}

func (p *sqlQueue) Read(ctx context.Context, to *Reader) error {
	for ctx.Err() == nil {
		if err := p.work(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// work claims some messages, and acknowledges them in a transaction.
func (p *sqlQueue) work(ctx context.Context, to *Reader) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	var text []byte
	if err := p.sql.db.QueryRowContext(ctx, `CALL weir.claim($1, $2, wait => '2 s', worker => 'weir verify --load')`, p.queue(), claimMost).Scan(&text); err != nil {
		return err
	}
	var messages []struct {
		value
		Receipt string
	}
	if err := json.Unmarshal(text, &messages); err != nil {
		return fmt.Errorf("claimed messages: %w", err)
	}
	values, receipts := make([][]byte, len(messages)), make([]string, len(messages))
	for i, m := range messages {
		values[i], receipts[i] = m.bytes(), m.Receipt
		if err := to.Got(values[i]); err != nil {
			return err
		}
	}
	if err := to.Flush(); err != nil || len(messages) == 0 {
		return err
	}
	err := inTransaction(ctx, p.sql.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT weir.ack(receipt) FROM unnest($1::text[]) AS receipt`, receipts)
		return err
	})
	if err != nil {
		return err
	}
	return to.Acked(values...)
}

// sqlStreams appends with the functions of PostgreSQL, and reads as the library does.
type sqlStreams struct{ libraryStreams }

func (p *sqlStreams) Traits() Traits {
	t := p.libraryStreams.Traits()
	t.Name = "SQL streams"
	return t
}

func (p *sqlStreams) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	expected, err := p.versions.of(writer, func() (version int64, err error) {
		newest := `SELECT coalesce(max(version) + 1, 0) FROM weir.stream($1, $2, backward => true, max_events => 1)`
		return version, p.sql.db.QueryRowContext(ctx, newest, p.name(), keyOf(writer)).Scan(&version)
	})
	if err != nil {
		return Wrote{}, Refused(err) // nothing was sent
	}
	types := make([]string, len(events))
	for i := range types {
		types[i] = "load"
	}
	var after int64
	err = inTransaction(ctx, p.sql.db, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT weir.append_all($1, $2, $3::bigint, $4::text[], $5::bytea[])`, p.name(), keyOf(writer), expected, types, events).Scan(&after)
	})
	if err != nil {
		p.versions.forget(writer)
		return Wrote{}, err
	}
	p.versions.set(writer, after)
	return Wrote{Version: after - int64(len(events))}, nil
}

// keysOf is the writer's key, once for each event.
func keysOf(writer int, events [][]byte) [][]byte {
	keys := make([][]byte, len(events))
	for i := range keys {
		keys[i] = []byte(keyOf(writer))
	}
	return keys
}
