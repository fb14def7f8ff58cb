-- The inbox has the events that SQL sessions publish in their own transactions. After the commit, a mover moves them into the log (door/sqlfn/inbox.go).
--
-- A session's transaction may stay open for an hour. So it must not lock anything that a commit to the log needs: it only adds rows here.
-- The move decides their offsets; it locks a partition only for milliseconds.
--
-- The transaction that appends a row to the log also deletes it here. So no visible row was moved yet: each waits only until the mover reads it.
CREATE TABLE weir.inbox (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact         xid8        NOT NULL, -- the transaction that wrote the row; assigned before the id, see weir.look
    topic        uuid        NOT NULL,
    partition    int,                  -- of the topic; NULL: the mover chooses, by the key
    key          bytea,
    value        bytea,                -- NULL: a tombstone
    headers      jsonb,
    size         int         NOT NULL, -- upper bound of the bytes of a batch with only this record
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- If grp is set, the row is not an event but the position of a group (functions/commit_offset.sql).
    grp          text,
    next_offset  bigint,
    base         bigint
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000,
    vacuum_truncate = off -- truncation needs a lock that blocks everybody for a moment
);

CREATE INDEX inbox_xact ON weir.inbox (xact, id);

-- mover has one row, which never changes. A move locks it, so there is one move at a time in the whole database. Other sessions cannot lock
-- it: they have no right to this table.
CREATE TABLE weir.mover (one boolean PRIMARY KEY DEFAULT true CHECK (one));

INSERT INTO weir.mover DEFAULT VALUES;

-- topic has what SQL functions need of each topic. Each publish reads it, so it is small: the topic's value in weir.state is JSON that grows with the
-- partitions. The transaction that writes that value also writes this row.
CREATE TABLE weir.topic (
    name       text COLLATE "C" PRIMARY KEY,
    id         uuid     NOT NULL,
    event_max  int      NOT NULL, -- the largest size of an event, as in weir.inbox.size
    partitions bigint[] NOT NULL, -- their numbers in weir.partition
    settings   jsonb    NOT NULL  -- only those that were set; the others have Kafka's defaults
);
