-- post_unusual puts an event with headers, with a partition, without a value, or for a topic whose name begins with __ into the inbox, or tells
-- what is wrong with it: it may be too large, or nothing may be published there.
CREATE OR REPLACE FUNCTION weir.post_unusual(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean, me xid8) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
    size  bigint;
BEGIN
    PERFORM weir.check_own(about);
    IF value IS NULL AND tombstone IS NOT TRUE THEN
        RAISE 'value is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'To say that the key is gone, call weir.tombstone(topic, key).';
    END IF;
    IF value IS NULL AND key IS NULL THEN
        RAISE 'key is null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'A tombstone says that a key is gone: name the key.';
    END IF;
    IF partition IS NOT NULL THEN
        PERFORM weir.check_partition(about, partition);
    END IF;
    headers := weir.checked_headers(headers);
    size := weir.around(headers) + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0);
    IF size > about.event_max THEN
        PERFORM weir.too_large(topic, size, about.event_max);
    END IF;
    INSERT INTO weir.inbox (xact, topic, partition, key, value, headers, size)
    VALUES (me, about.id, partition, key, value, headers, size);
END $$;
