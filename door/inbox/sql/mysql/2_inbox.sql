-- Events that transactions published and that are not moved into the log yet.
CREATE TABLE IF NOT EXISTS weir_inbox (
    id               BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    topic            VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic_id         CHAR(32) CHARACTER SET ascii COLLATE ascii_bin, -- NULL: of the topic that has the name when the row is moved
    event_key        LONGBLOB,
    event_value      LONGBLOB, -- NULL: a tombstone, which needs a key
    headers          LONGTEXT CHARACTER SET utf8mb4, -- a JSON object; NULL: none
    partition_number INT,      -- NULL: chosen by the key
    published_at     BIGINT NOT NULL -- milliseconds since the Unix epoch
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
