-- post_message puts one message of a work queue into the inbox. Most messages are simply an event for the queue's topic: for these, as in weir.post, it
-- is one statement and one condition.
CREATE OR REPLACE FUNCTION weir.post_message(
    queue text, key bytea, value bytea, headers jsonb, delay interval, at timestamptz, priority int, unique_key text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    definition json := weir.find_queue(queue);
    me         xid8 := pg_current_xact_id(); -- before the row's id, see weir.look
BEGIN
    INSERT INTO weir.inbox (xact, topic, key, value, size)
    SELECT me, t.id, post_message.key, post_message.value, weir.overhead(NULL) + coalesce(octet_length(post_message.key), 0) + octet_length(post_message.value)
    FROM weir.topic t
    WHERE t.name = definition ->> 'topic' AND t.id = (definition ->> 'topic_id')::uuid AND NOT starts_with(t.name, '__')
      AND post_message.headers = '{}' AND delay IS NULL AND at IS NULL AND priority = 0 AND unique_key IS NULL
      AND weir.overhead(NULL) + coalesce(octet_length(post_message.key), 0) + octet_length(post_message.value) <= t.event_max; -- and a value that is not NULL
    IF NOT FOUND THEN
        PERFORM weir.post_unusual_message(queue, definition, key, value, headers, delay, at, priority, unique_key, me, NULL);
    END IF;
    PERFORM weir.notify_mover();
END $$;
