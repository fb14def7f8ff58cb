-- post puts one event into the inbox. Who may call it may publish. All functions for single events are thin covers of this one.
--
-- It is called once a transaction, and then each statement, and each expression outside of one, costs as much as a row. So the usual case is
-- one statement and one condition; whatever is unusual, errors included, is the business of post_unusual and of stir.
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
      AND 80 + coalesce(octet_length(post.key), 0) + octet_length(post.value) <= t.event_max; -- and a value that is not NULL
    IF FOUND AND to_timestamp(pg_sequence_last_value('weir.hushed')) > clock_timestamp() THEN -- nobody needs to be told
        RETURN;
    END IF;
    IF NOT FOUND THEN
        PERFORM weir.post_unusual(topic, key, value, headers, partition, tombstone, me);
    END IF;
    PERFORM weir.stir();
END $$;
