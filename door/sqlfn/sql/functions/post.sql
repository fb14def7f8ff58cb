-- post puts one event into the inbox. A role that may call it may publish. All functions that publish a single event call it.
--
-- It is often called once in each transaction; then each statement, and each expression outside one, costs as much as the row. So the usual case is
-- one statement and one condition; all else, errors included, is in post_unusual and notify_mover.
CREATE OR REPLACE FUNCTION weir.post(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
DECLARE
    me xid8 := pg_current_xact_id(); -- before the row's id, see weir.look
BEGIN
    INSERT INTO weir.inbox (xact, topic, key, value, size)
    SELECT me, t.id, post.key, post.value, 80 + coalesce(octet_length(post.key), 0) + octet_length(post.value)
    FROM weir.topic t
    WHERE t.name = post.topic AND NOT starts_with(t.name, '__') AND post.headers = '{}' AND post.partition IS NULL
      AND (post.key IS NOT NULL OR (t.settings ->> 'cleanup.policy' LIKE '%compact%') IS NOT TRUE)
      AND 80 + coalesce(octet_length(post.key), 0) + octet_length(post.value) <= t.event_max; -- and a value that is not NULL
    IF FOUND AND to_timestamp(pg_sequence_last_value('weir.hushed')) > clock_timestamp() THEN -- nobody needs a notification
        RETURN;
    END IF;
    IF NOT FOUND THEN
        PERFORM weir.post_unusual(topic, key, value, headers, partition, tombstone, me);
    END IF;
    PERFORM weir.notify_mover();
END $$;
