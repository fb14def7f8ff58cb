-- Positions that consumers commit in their own transactions: the consumer's work and its position are committed together, or not at all.
--
-- A group's position is stored in two places. The one here is written by weir.commit_offset, and locked until the consumer's
-- transaction ends. The other is a key in weir.state, which Kafka clients and tools read and write. Consumers' transactions never
-- lock that key, because commits to the log lock it. The mover copies positions from here to the key, through the inbox.
--
-- To decide which of the two is valid, no clock is needed. A position here stores its base: the stamp of the key that it continues from.
-- The metadata of a key says if the key continues from the same base: the mover writes such keys, and so do consumers that handle events without
-- weir.commit_offset. Then the higher of the two positions is valid. Any other key was written later, as a new start of the group; then only the key is valid.

-- consumer has a row for each group and partition. Commits of one position wait for the lock of its row. The rows never change, so taking the lock is fast.
CREATE TABLE weir.consumer (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    grp       text COLLATE "C" NOT NULL,
    topic     uuid             NOT NULL,
    partition int              NOT NULL,
    UNIQUE (grp, topic, partition)
);

-- consumed has the positions of the consumers. The row with the highest turn is valid, as in weir.state: see 001_tables.sql.
CREATE TABLE weir.consumed (
    consumer     bigint NOT NULL,
    turn         bigint NOT NULL DEFAULT 0,
    writes       bigint NOT NULL DEFAULT 0,
    next_offset  bigint NOT NULL,
    base         bigint, -- NULL: there was no key, or the mover wrote the key from here
    committed_at timestamptz NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000
);

CREATE UNIQUE INDEX consumed_key ON weir.consumed (consumer, turn DESC);
