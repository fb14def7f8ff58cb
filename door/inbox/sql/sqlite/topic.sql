-- The event is for the topic that there is now, not for one that is created later with its name.
CREATE TRIGGER IF NOT EXISTS weir_inbox_topic AFTER INSERT ON weir_inbox WHEN NEW.topic_id IS NULL
BEGIN
    UPDATE weir_inbox SET topic_id = (SELECT json_extract(CAST(s.value AS TEXT), '$.id') FROM state s WHERE s.key = 'topic/' || NEW.topic) WHERE id = NEW.id;
END
