-- post puts one event into the inbox of a shard. It has the name and the arguments that it has in door/sqlfn, so roles keep their rights when a database becomes a shard. Only shard 0 knows the topics: elsewhere the mover finds out later what is wrong with an event for its topic.
CREATE OR REPLACE FUNCTION weir.post(topic text, key bytea, value bytea, headers jsonb, partition int, tombstone boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
DECLARE
    wrong record;
    about jsonb; -- of the topic; NULL: this shard does not know it
    size  bigint := 80 + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce(octet_length(nullif(headers, '{}')::text), 0);
BEGIN
    IF topic IS NULL OR topic = '' OR octet_length(topic) > 249 THEN
        RAISE 'topic "%" is not the name of a topic', left(topic, 249)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A name has 1 to 249 bytes.';
    ELSIF starts_with(topic, '__') THEN
        RAISE 'topic "%" belongs to weir', topic
        USING ERRCODE = 'insufficient_privilege', HINT = 'Only weir appends to topics whose names begin with __.';
    ELSIF value IS NULL AND NOT tombstone THEN
        RAISE 'value is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'To publish a tombstone, call weir.tombstone(topic, key).';
    ELSIF value IS NULL AND key IS NULL THEN
        RAISE 'key is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'A tombstone needs a key: it marks the key as deleted.';
    ELSIF partition < 0 THEN
        RAISE 'partition % does not exist', partition USING ERRCODE = 'invalid_parameter_value', HINT = 'Partitions are numbered from 0.';
    ELSIF jsonb_typeof(headers) <> 'object' THEN
        RAISE 'headers is of type %', jsonb_typeof(headers)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be an object, such as {"source": "billing"}.';
    END IF;
    SELECT h.key, jsonb_typeof(h.value) AS type INTO wrong
    FROM jsonb_each(headers) AS h WHERE jsonb_typeof(h.value) NOT IN ('string', 'null') LIMIT 1;
    IF FOUND THEN
        RAISE 'headers: "%" is of type %', wrong.key, wrong.type
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A header must be a string or null.';
    END IF;
    -- The event is for the topic that there is now, not for one that is created later with its name.
    SELECT convert_from(s.value, 'UTF8')::jsonb INTO about FROM weir.state s WHERE s.key = 'topic/' || post.topic ORDER BY s.turn DESC LIMIT 1;
    IF about IS NULL AND EXISTS (SELECT FROM weir.state s WHERE s.key = 'incarnation/shard' AND (convert_from(s.value, 'UTF8')::json ->> 'shard')::int = 0) THEN
        RAISE 'topic "%" does not exist', topic USING ERRCODE = 'undefined_object', HINT = 'Create it with weir topic create.';
    END IF;
    IF about ? 'writer' THEN
        RAISE 'only % append to topic "%"', about ->> 'writer', topic
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic.';
    ELSIF partition >= jsonb_array_length(about -> 'partitions') THEN
        RAISE 'topic "%" has no partition %', topic, partition
        USING ERRCODE = 'WE002', HINT = format('The topic has the partitions 0 to %s.', jsonb_array_length(about -> 'partitions') - 1);
    ELSIF about IS NOT NULL AND size > coalesce((about #>> '{config,max.message.bytes}')::bigint, 1048588) THEN
        RAISE 'the event is too large for topic "%": it has % bytes with key, headers and framing, and max.message.bytes is %',
            topic, size, coalesce(about #>> '{config,max.message.bytes}', '1048588')
        USING ERRCODE = 'WE003', HINT = 'Raise max.message.bytes of the topic, or keep large values elsewhere and publish where they are.';
    ELSIF key IS NULL AND about #>> '{config,cleanup.policy}' LIKE '%compact%' THEN
        RAISE 'key is null, and topic "%" is compacted', topic
        USING ERRCODE = 'null_value_not_allowed', HINT = 'A compacted topic (cleanup.policy) keeps the newest event of each key: give each event a key.';
    END IF;
    INSERT INTO weir.weir_inbox (topic, topic_id, event_key, event_value, headers, partition_number)
    VALUES (post.topic, about ->> 'id', post.key, post.value, nullif(post.headers, '{}')::text, post.partition);
END $$;
