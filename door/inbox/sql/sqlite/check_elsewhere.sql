-- The topics are on another shard: the mover finds out later what is wrong with an event for its topic.
CREATE TRIGGER IF NOT EXISTS weir_inbox_check BEFORE INSERT ON weir_inbox
BEGIN
    SELECT CASE
        WHEN NEW.event_key IS NULL AND NEW.event_value IS NULL THEN RAISE(ABORT, 'weir: an event without a value is a tombstone, which needs a key')
        WHEN NEW.headers IS NOT NULL AND NOT json_valid(NEW.headers) THEN RAISE(ABORT, 'weir: headers must be a JSON object or NULL')
        WHEN NEW.headers IS NOT NULL AND json_type(NEW.headers) <> 'object' THEN RAISE(ABORT, 'weir: headers must be a JSON object or NULL')
        WHEN NEW.partition_number < 0 THEN RAISE(ABORT, 'weir: the topic has no partition with this number')
    END;
END
