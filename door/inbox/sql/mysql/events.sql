-- weir_events returns events of a partition from an offset on; see weir_read_events.
CREATE PROCEDURE weir_events(IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN partition_number INT, IN from_offset BIGINT, IN max_events INT)
    READS SQL DATA
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    DECLARE next_offset BIGINT;
    CALL weir_read_events(topic, partition_number, from_offset, max_events, next_offset);
END
