-- On a shard: when a change of its row is durable, all that was committed before is durable, too.
CREATE TABLE IF NOT EXISTS weir_inbox_barrier (
    one INT    NOT NULL PRIMARY KEY,
    n   BIGINT NOT NULL
) ENGINE=InnoDB
