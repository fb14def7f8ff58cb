-- Events that can never be moved into the log, and why: their topic was deleted, for example. weir never deletes them.
CREATE TABLE IF NOT EXISTS weir_inbox_refused (
    id               BIGINT NOT NULL PRIMARY KEY,
    topic            VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic_id         CHAR(32) CHARACTER SET ascii COLLATE ascii_bin, -- NULL: the event had only the topic's name
    event_key        LONGBLOB,
    event_value      LONGBLOB,
    headers          LONGTEXT CHARACTER SET utf8mb4,
    partition_number INT,
    published_at     BIGINT NOT NULL,
    reason           TEXT CHARACTER SET utf8mb4 NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
