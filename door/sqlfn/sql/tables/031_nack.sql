-- Sessions may give messages back in their own transactions (functions/nack.sql), and extend leases. If a row of weir.acked also has a row here, the message was given
-- back with this receipt, and is not done. This is a table and not a column, because to add a column would wait for open transactions that have acknowledged messages.
CREATE TABLE weir.nacked (
    queue     text COLLATE "C" NOT NULL,
    partition bigint           NOT NULL,
    "offset"  bigint           NOT NULL,
    receipt   text             NOT NULL,
    PRIMARY KEY (queue, partition, "offset")
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

INSERT INTO weir.rights (kind, what) VALUES
    ('consumer', 'EXECUTE ON FUNCTION weir.nack(text, text, interval, boolean)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.extend(text, interval)');
