-- post_unusual puts an event into the inbox that has headers, a partition or no value, or is for a topic whose name begins with __; or it raises the error
-- of an event that is too large, has no key in a compacted topic, or is for a topic to which nothing can be published.
CREATE OR REPLACE FUNCTION weir.post_unusual(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean, me xid8) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    about weir.topic := weir.find_target(topic);
    size  bigint;
BEGIN
    PERFORM weir.check_own(about);
    IF value IS NULL AND tombstone IS NOT TRUE THEN
        RAISE 'value is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'To publish a tombstone, call weir.tombstone(topic, key).';
    END IF;
    IF value IS NULL AND key IS NULL THEN
        RAISE 'key is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'A tombstone needs a key: it marks the key as deleted.';
    END IF;
    IF key IS NULL THEN
        PERFORM weir.check_keyed(about, 'key is null');
    END IF;
    IF partition IS NOT NULL THEN
        PERFORM weir.check_partition(about, partition);
    END IF;
    headers := weir.checked_headers(headers);
    size := weir.overhead(headers) + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0);
    IF size > about.event_max THEN
        PERFORM weir.too_large(topic, size, about.event_max);
    END IF;
    INSERT INTO weir.inbox (xact, topic, partition, key, value, headers, size)
    VALUES (me, about.id, partition, key, value, headers, size);
END $$;
