-- How far a consumer has come, committed in the consumer's own transaction: what it did with the events and how far it came are one.
--
-- Two places hold a group's position. The one here is written by weir.commit_offset and locked for as long as the consumer's
-- transaction takes. The other is a key in weir.state, which Kafka clients and tools read and write; consumers' transactions never
-- lock it, for commits to the log do. The mover carries positions from here to there, by way of the inbox.
--
-- Which of the two says where the group is can be told without a clock: a position here remembers the stamp of the key that it is built on, its base.
-- A key says in its metadata that it goes on with the same base, as the mover's do, and those of consumers that handled events without
-- weir.commit_offset: then the farther of the two counts. Any other key was written later, by somebody who begins anew there, and counts alone.

-- consumer names what is consumed. Its rows never change, so the lock on one stays quick to take: commits of one position queue for it.
CREATE TABLE weir.consumer (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    grp       text COLLATE "C" NOT NULL,
    topic     uuid             NOT NULL,
    partition int              NOT NULL,
    UNIQUE (grp, topic, partition)
);

-- consumed holds one position for each consumer, newest turn first, as in weir.state: see 001_tables.sql.
CREATE TABLE weir.consumed (
    consumer     bigint NOT NULL,
    turn         bigint NOT NULL DEFAULT 0,
    writes       bigint NOT NULL DEFAULT 0,
    next_offset  bigint NOT NULL,
    base         bigint, -- NULL: there was no key, or it came from here
    committed_at timestamptz NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000
);

CREATE UNIQUE INDEX consumed_key ON weir.consumed (consumer, turn DESC);
