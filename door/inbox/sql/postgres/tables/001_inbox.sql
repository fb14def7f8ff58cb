-- Which inbox this is. The ids of what was moved are kept under this name, so a copy of the log does not take another inbox for its own.
CREATE TABLE weir.weir_inbox_identity (
    one  int  PRIMARY KEY,
    name text NOT NULL
);

-- Events that transactions published and that are not moved into the log yet.
CREATE TABLE weir.weir_inbox (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic            text   NOT NULL,
    topic_id         text,   -- NULL: of the topic that has the name when the row is moved
    event_key        bytea,
    event_value      bytea,  -- NULL: a tombstone, which needs a key
    headers          text,   -- a JSON object; NULL: none
    partition_number int,    -- NULL: chosen by the key
    published_at     bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint -- milliseconds since the Unix epoch
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off -- truncation needs a lock that blocks everybody for a moment
);

-- Events that can never be moved into the log, and why: their topic was deleted, for example. weir never deletes them.
CREATE TABLE weir.weir_inbox_refused (
    id               bigint PRIMARY KEY,
    topic            text   NOT NULL,
    topic_id         text,
    event_key        bytea,
    event_value      bytea,
    headers          text,
    partition_number int,
    published_at     bigint NOT NULL,
    reason           text   NOT NULL
);

-- The partition that was chosen for a row of weir_inbox. It stays, so that movers that try again publish nothing to another partition.
CREATE TABLE weir.weir_inbox_target (
    id               bigint PRIMARY KEY,
    topic_id         text   NOT NULL,
    partition_number int    NOT NULL,
    partition_id     bigint NOT NULL
);

-- When a change of its row is durable, all that was committed before is durable, too.
CREATE TABLE weir.weir_inbox_barrier (
    one int    PRIMARY KEY,
    n   bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO weir.weir_inbox_barrier VALUES (1, 0);

-- A database that held a log by itself before it became a shard has the inbox of door/sqlfn. Its events that were not moved yet are moved here. Their order is that in which
-- they were published, which is that of their ids: of two transactions, the one that published later may have begun earlier.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
BEGIN
    IF to_regclass('weir.inbox') IS NOT NULL AND to_regclass('weir.topic') IS NOT NULL THEN
        LOCK TABLE weir.inbox IN SHARE ROW EXCLUSIVE MODE;
        WITH moved AS (
            DELETE FROM weir.inbox i WHERE i.grp IS NULL AND EXISTS (SELECT FROM weir.topic t WHERE t.id = i.topic AND NOT starts_with(t.name, '__'))
            RETURNING i.id, i.topic, i.partition, i.key, i.value, i.headers, i.published_at
        )
        INSERT INTO weir.weir_inbox (topic, topic_id, event_key, event_value, headers, partition_number, published_at)
        SELECT t.name, replace(m.topic::text, '-', ''), m.key, m.value, m.headers::text, m.partition, (extract(epoch FROM m.published_at) * 1000)::bigint
        FROM moved m JOIN weir.topic t ON t.id = m.topic
        ORDER BY m.id;
    END IF;
END $$;
