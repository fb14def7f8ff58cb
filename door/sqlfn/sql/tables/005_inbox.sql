-- The inbox: what SQL sessions publish, in their own transactions. A mover carries it into the log once it is committed (door/sqlfn/inbox.go).
--
-- A session's transaction may stay open for an hour. So it touches nothing that a commit to the log touches: it adds rows here,
-- and that is all. Where in the log they come to stand is decided by the move, which holds a partition for milliseconds.
--
-- A row is deleted by the transaction that appends it to the log. So whatever can be seen here is not moved yet, and a row waits for
-- nothing but the next look.
CREATE TABLE weir.inbox (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact         xid8        NOT NULL, -- that wrote the row; always taken before the id, see weir.look
    topic        uuid        NOT NULL,
    partition    int,                  -- of the topic; NULL: the mover chooses, by the key
    key          bytea,
    value        bytea,                -- NULL: a tombstone
    headers      jsonb,
    size         int         NOT NULL, -- of a batch with this one record, at most
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- With a group the row is no event, but how far the group has come (functions/commit_offset.sql).
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
    vacuum_truncate = off -- to shorten the table it would lock out everybody for a moment
);

CREATE INDEX inbox_xact ON weir.inbox (xact, id);

-- mover is one row, which never changes. Its lock is held by the move under way: one at a time in the whole database. No session can take
-- it: none has a right to this table.
CREATE TABLE weir.mover (one boolean PRIMARY KEY DEFAULT true CHECK (one));

INSERT INTO weir.mover DEFAULT VALUES;

-- topic is what SQL needs to know of each topic, narrow: its value in weir.state is JSON that grows with the partitions, and whoever publishes
-- an event looks here. It is written by whoever writes that value, in the same transaction.
CREATE TABLE weir.topic (
    name       text COLLATE "C" PRIMARY KEY,
    id         uuid     NOT NULL,
    event_max  int      NOT NULL, -- how large an event may be, as weir.inbox counts it in size
    partitions bigint[] NOT NULL, -- their numbers in weir.partition
    settings   jsonb    NOT NULL  -- those that were set; for the others Kafka's defaults hold
);
