-- What the mover would refuse for good is refused when it is published.
CREATE TRIGGER IF NOT EXISTS weir_inbox_check BEFORE INSERT ON weir_inbox
BEGIN
    SELECT CASE
        WHEN s.value IS NULL THEN RAISE(ABORT, 'weir: the topic does not exist: create it with weir topic create')
        WHEN json_extract(CAST(s.value AS TEXT), '$.writer') IS NOT NULL THEN RAISE(ABORT, 'weir: only a queue or a category appends to this topic')
        WHEN NEW.event_key IS NULL AND NEW.event_value IS NULL THEN RAISE(ABORT, 'weir: an event without a value is a tombstone, which needs a key')
        WHEN 80 + coalesce(length(CAST(NEW.event_key AS BLOB)), 0) + coalesce(length(CAST(NEW.event_value AS BLOB)), 0) + coalesce(length(CAST(NEW.headers AS BLOB)), 0)
            > CAST(coalesce(json_extract(CAST(s.value AS TEXT), '$.config."max.message.bytes"'), 1048588) AS INTEGER)
            THEN RAISE(ABORT, 'weir: the event is larger than max.message.bytes of the topic')
        WHEN NEW.headers IS NOT NULL AND NOT json_valid(NEW.headers) THEN RAISE(ABORT, 'weir: headers must be a JSON object or NULL')
        WHEN NEW.headers IS NOT NULL AND json_type(NEW.headers) <> 'object' THEN RAISE(ABORT, 'weir: headers must be a JSON object or NULL')
        WHEN NEW.partition_number < 0 OR NEW.partition_number >= json_array_length(CAST(s.value AS TEXT), '$.partitions')
            THEN RAISE(ABORT, 'weir: the topic has no partition with this number')
    END
    FROM (SELECT 1) LEFT JOIN state s ON s.key = 'topic/' || NEW.topic;
END
