-- Messages of work queues that sessions acknowledged in their own transactions (functions/ack.sql), until the mover has applied that to their queue. Because of the
-- primary key only one transaction at a time can acknowledge a message: a second one waits for it, and is refused if it commits.
CREATE TABLE weir.acked (
    queue     text COLLATE "C" NOT NULL, -- its id, not its name
    partition bigint           NOT NULL,
    "offset"  bigint           NOT NULL,
    PRIMARY KEY (queue, partition, "offset")
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

INSERT INTO weir.rights (kind, what) VALUES
    ('consumer', 'EXECUTE ON FUNCTION weir.ack(text)');
