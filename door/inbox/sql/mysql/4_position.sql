-- How far consumers of weir_consume have come. A topic that is deleted and created again has another id.
CREATE TABLE IF NOT EXISTS weir_position (
    consumer         VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    topic_id         CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partition_number INT NOT NULL,
    next_offset      BIGINT NOT NULL, -- all events below are handled
    PRIMARY KEY (consumer, topic_id, partition_number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
