-- On a shard: the partition that was chosen for a row of weir_inbox. It stays, so that movers that try again publish nothing to another partition.
CREATE TABLE IF NOT EXISTS weir_inbox_target (
    id               INTEGER PRIMARY KEY,
    topic_id         TEXT    NOT NULL,
    partition_number INTEGER NOT NULL,
    partition_id     INTEGER NOT NULL
)
