-- weir_publish_event publishes an event in the caller's transaction. headers is a JSON object of strings or NULL; partition_number NULL: chosen by the key.
-- Where the topics are on another shard, the mover finds out later what is wrong with an event for its topic.
CREATE PROCEDURE weir_publish_event(
    IN topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN event_key LONGBLOB, IN event_value LONGBLOB, IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN partition_number INT)
    SQL SECURITY DEFINER
    COMMENT ':version'
BEGIN
    DECLARE about LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE most BIGINT;
    DECLARE size BIGINT;
    DECLARE why VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    SELECT CONVERT(s.value USING utf8mb4) INTO about FROM weir_state s WHERE s.k = CAST(CONCAT('topic/', topic) AS BINARY);
    SET size = 80 + COALESCE(LENGTH(event_key), 0) + COALESCE(LENGTH(event_value), 0) + COALESCE(LENGTH(headers), 0);
    SET most = COALESCE(JSON_UNQUOTE(JSON_EXTRACT(about, '$.config."max.message.bytes"')), 1048588);
    SET why = CASE
        WHEN about IS NULL AND NOT :elsewhere THEN CONCAT('topic ', QUOTE(LEFT(topic, 100)), ' does not exist: create it with weir topic create')
        WHEN JSON_EXTRACT(about, '$.writer') IS NOT NULL THEN CONCAT('only ', JSON_UNQUOTE(JSON_EXTRACT(about, '$.writer')), ' append to topic ', LEFT(topic, 100))
        WHEN event_key IS NULL AND event_value IS NULL THEN 'an event without a value is a tombstone, which needs a key'
        WHEN event_key IS NULL AND JSON_UNQUOTE(JSON_EXTRACT(about, '$.config."cleanup.policy"')) LIKE '%compact%'
            THEN CONCAT('an event has no key, and topic ', LEFT(topic, 60), ' is compacted (cleanup.policy)')
        WHEN about IS NOT NULL AND size > most THEN CONCAT('the event has about ', size, ' bytes, max.message.bytes of the topic is ', most)
        WHEN headers IS NOT NULL AND NOT JSON_VALID(headers) THEN 'headers must be a JSON object or NULL'
        WHEN headers IS NOT NULL AND JSON_TYPE(headers) <> 'OBJECT' THEN 'headers must be a JSON object or NULL'
        WHEN partition_number < 0 OR partition_number >= JSON_LENGTH(about, '$.partitions')
            THEN CONCAT('partition ', partition_number, ' does not exist: the topic has ', JSON_LENGTH(about, '$.partitions'))
    END;
    IF why IS NOT NULL THEN
        SET why = LEFT(CONCAT('weir: ', why), 128); -- MESSAGE_TEXT has at most 128 characters
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = why;
    END IF;
    INSERT INTO weir_inbox (topic, topic_id, event_key, event_value, headers, partition_number, published_at)
    VALUES (topic, JSON_UNQUOTE(JSON_EXTRACT(about, '$.id')), event_key, event_value, headers, partition_number, 
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000); -- whatever the session's time zone is
END
