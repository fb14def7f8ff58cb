-- described returns the row of weir.topic for a topic's key and value in weir.state. If only one of weir's uses may append to the topic (eventlog.Topic.Writer),
-- event_max is -1: then no event can be published, however small.
CREATE OR REPLACE FUNCTION weir.described(key text, value bytea) RETURNS weir.topic
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT substr(key, 7),
           (t.about ->> 'id')::uuid,
           CASE WHEN t.about ? 'writer' THEN -1 ELSE least(coalesce((t.about #>> '{config,max.message.bytes}')::bigint, 1048588), weir.event_most()) END::int,
           ARRAY(SELECT p.id::bigint FROM jsonb_array_elements_text(t.about -> 'partitions') WITH ORDINALITY AS p(id, nth) ORDER BY p.nth),
           coalesce(t.about -> 'config', '{}')
    FROM (SELECT convert_from(value, 'UTF8')::jsonb AS about) AS t;
END;
