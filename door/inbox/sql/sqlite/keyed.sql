-- Each event of a compacted topic needs a key.
CREATE TRIGGER IF NOT EXISTS weir_inbox_keyed BEFORE INSERT ON weir_inbox WHEN NEW.event_key IS NULL
BEGIN
    SELECT RAISE(ABORT, 'weir: the event has no key, and the topic is compacted (cleanup.policy)')
    FROM state s WHERE s.key = 'topic/' || NEW.topic AND json_extract(CAST(s.value AS TEXT), '$.config."cleanup.policy"') LIKE '%compact%';
END
