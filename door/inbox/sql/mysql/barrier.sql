-- On a shard: a change of its row is durable when all is that was committed before.
CREATE TABLE IF NOT EXISTS weir_inbox_barrier (
    one INT    NOT NULL PRIMARY KEY,
    n   BIGINT NOT NULL
) ENGINE=InnoDB
