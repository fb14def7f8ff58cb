-- Messages of work queues that sessions acknowledged in their own transactions (functions/ack.sql), until the mover has carried that to their queue. The key
-- lets one transaction at a time acknowledge a message: another waits for it, and is refused where it committed.
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
