-- described gives the row of weir.topic for a topic's key and value in weir.state.
CREATE OR REPLACE FUNCTION weir.described(key text, value bytea) RETURNS weir.topic
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT substr(key, 7),
           (t.about ->> 'id')::uuid,
           least(coalesce((t.about #>> '{config,max.message.bytes}')::bigint, 1048588), weir.event_most())::int,
           ARRAY(SELECT p.id::bigint FROM jsonb_array_elements_text(t.about -> 'partitions') WITH ORDINALITY AS p(id, nth) ORDER BY p.nth),
           coalesce(t.about -> 'config', '{}')
    FROM (SELECT convert_from(value, 'UTF8')::jsonb AS about) AS t;
END;
