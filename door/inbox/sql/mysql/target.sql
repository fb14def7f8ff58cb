-- On a shard: the partition that was chosen for a row of weir_inbox. It stays, so that movers that try again publish nothing to another partition.
CREATE TABLE IF NOT EXISTS weir_inbox_target (
    id               BIGINT NOT NULL PRIMARY KEY,
    topic_id         CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_number INT    NOT NULL,
    partition_id     BIGINT NOT NULL
) ENGINE=InnoDB
