-- weir_consume returns the events after those that a consumer has handled, as weir_read_events does, and counts them as handled if the caller's transaction commits.
-- The transaction holds the consumer's position in the partition: another one of the same consumer waits for it to end.
CREATE PROCEDURE weir_consume(IN consumer VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN partition_number INT, IN max_events INT)
    MODIFIES SQL DATA
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    DECLARE about LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE topic_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE next_offset BIGINT;
    DECLARE from_offset BIGINT DEFAULT 0;
    DECLARE inside INT DEFAULT NOT @@autocommit; -- in a transaction
    DECLARE CONTINUE HANDLER FOR 1568 SET inside = 1; -- what holds for the next transaction cannot be set within one
    :inside
    IF consumer IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'weir: consumer is NULL';
    ELSEIF CHAR_LENGTH(consumer) > 249 OR consumer LIKE '% ' THEN -- the table takes a name with spaces at its end for the one without
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'weir: consumer must have at most 249 characters, and no space at its end';
    ELSEIF NOT inside THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'weir: begin a transaction first: the events count as handled when it commits';
    END IF;
    SELECT CONVERT(s.value USING utf8mb4) INTO about FROM weir_state s WHERE s.k = CAST(CONCAT('topic/', topic) AS BINARY);
    SET topic_id = JSON_UNQUOTE(JSON_EXTRACT(about, '$.id'));
    IF partition_number BETWEEN 0 AND JSON_LENGTH(about, '$.partitions') - 1 THEN -- else weir_read_events refuses
        -- This locks the row, whether it exists or not. After INSERT IGNORE two transactions that share the row's lock would always wait for each other; so they do only
        -- if the row is new and the first one rolls back.
        :latest INSERT INTO weir_position VALUES (consumer, topic_id, partition_number, 0) ON DUPLICATE KEY UPDATE weir_position.next_offset = weir_position.next_offset;
        :latest SELECT p.next_offset INTO from_offset FROM weir_position p WHERE p.consumer = consumer AND p.topic_id = topic_id AND p.partition_number = partition_number FOR UPDATE;
    END IF;
    CALL weir_read_events(topic, partition_number, from_offset, max_events, next_offset);
    :latest UPDATE weir_position p SET p.next_offset = next_offset WHERE p.consumer = consumer AND p.topic_id = topic_id AND p.partition_number = partition_number;
END
