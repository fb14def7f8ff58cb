-- post_message_id is post_message for a caller who keeps the message's id: the id of its row in the inbox.
CREATE OR REPLACE FUNCTION weir.post_message_id(
    queue text, key bytea, value bytea, headers jsonb, delay interval, at timestamptz, priority int, unique_key text
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM weir.post_unusual_message(queue, weir.find_queue(queue), key, value, headers, delay, at, priority, unique_key, pg_current_xact_id(), 0);
    PERFORM weir.notify_mover();
    RETURN currval('weir.inbox_id_seq');
END $$;
