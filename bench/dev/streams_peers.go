package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlStreams appends with a function in the database, which returns the version that the stream was
// at, or -1 once it has appended.
type sqlStreams struct {
	pool *pgxpool.Pool
	read string // the versions of a stream, in order
}

func openSQLStreams(ctx context.Context, address, read, schema string) (appender, error) {
	pool, err := connections(ctx, address, 64)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		pool.Close()
		return nil, err
	}
	return sqlStreams{pool, read}, nil
}

func (s sqlStreams) Close() { s.pool.Close() }

func (s sqlStreams) Append(ctx context.Context, name string, version int64, data []byte) (int64, bool, error) {
	var actual int64
	err := s.pool.QueryRow(ctx, `SELECT append_event($1, $2, $3)`, name, version, string(data)).Scan(&actual)
	if unique, is := errors.AsType[*pgconn.PgError](err); is && unique.Code == "23505" { // another was faster: how far is it?
		return s.Append(ctx, name, version, data)
	}
	if err != nil {
		return 0, false, err
	}
	if actual >= 0 {
		return actual, false, nil
	}
	return version, true, nil
}

func (s sqlStreams) Length(ctx context.Context, name string) (n int64, err error) {
	rows, err := s.pool.Query(ctx, s.read, name)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var at int64
		var data []byte
		if err := rows.Scan(&at, &data); err != nil {
			return n, err
		}
		if at != n {
			return n, fmt.Errorf("version %d comes after %d events", at, n)
		}
	}
	return n, rows.Err()
}

// openMessageDB is an event store in the manner of message-db, from its description: writers of a
// category follow one another by an advisory lock, so that positions of all events come in the
// order of commits; the version is the highest position of the stream; a unique index guards it.
func openMessageDB(ctx context.Context, address string) (appender, error) {
	return openSQLStreams(ctx, address, `SELECT position, data FROM messages WHERE stream_name = $1 ORDER BY position`, `
		CREATE TABLE messages (
			global_position bigserial PRIMARY KEY, position bigint NOT NULL, time timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'utc'),
			stream_name text NOT NULL, type text NOT NULL, data jsonb, metadata jsonb, id uuid NOT NULL DEFAULT gen_random_uuid()
		);
		CREATE UNIQUE INDEX messages_id ON messages (id);
		CREATE UNIQUE INDEX messages_stream ON messages (stream_name, position);
		CREATE FUNCTION append_event(name text, expected bigint, body text) RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE at bigint;
		BEGIN
			PERFORM pg_advisory_xact_lock(hashtext('currency'));
			SELECT max(position) + 1 INTO at FROM messages WHERE stream_name = name;
			at := coalesce(at, 0);
			IF at <> expected THEN RETURN at; END IF;
			INSERT INTO messages (position, stream_name, type, data) VALUES (at, name, 'CurrencyInfoAdded', body::jsonb);
			RETURN -1;
		END $$`)
}

// openMarten is an event store in the manner of Marten's quick append, from its description: a row
// for each stream with its version, and a function that moves it on and inserts the event, whose
// position of all events is a sequence's (so readers must wait for gaps).
func openMarten(ctx context.Context, address string) (appender, error) {
	return openSQLStreams(ctx, address, `SELECT version, data FROM events WHERE stream_id = $1 ORDER BY version`, `
		CREATE TABLE streams (id text PRIMARY KEY, type text, version bigint NOT NULL, timestamp timestamptz NOT NULL DEFAULT now(), created timestamptz NOT NULL DEFAULT now());
		CREATE SEQUENCE events_sequence;
		CREATE TABLE events (
			seq_id bigint PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(), stream_id text NOT NULL REFERENCES streams ON DELETE CASCADE,
			version bigint NOT NULL, data jsonb NOT NULL, type text NOT NULL, timestamp timestamptz NOT NULL DEFAULT now()
		);
		CREATE UNIQUE INDEX events_stream ON events (stream_id, version);
		CREATE UNIQUE INDEX events_id ON events (id);
		CREATE FUNCTION append_event(name text, expected bigint, body text) RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE at bigint;
		BEGIN
			SELECT version INTO at FROM streams WHERE id = name FOR UPDATE;
			IF at IS NULL THEN
				IF expected <> 0 THEN RETURN 0; END IF;
				INSERT INTO streams (id, version) VALUES (name, 1);
				at := 0;
			ELSE
				IF at <> expected THEN RETURN at; END IF;
				UPDATE streams SET version = at + 1, timestamp = now() WHERE id = name;
			END IF;
			INSERT INTO events (seq_id, stream_id, version, data, type) VALUES (nextval('events_sequence'), name, at, body::jsonb, 'CurrencyInfoAdded');
			RETURN -1;
		END $$`)
}
