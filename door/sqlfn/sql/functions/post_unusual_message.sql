-- post_unusual_message puts a message into the inbox that has headers, a priority, a delay or a unique key; or it raises the error of a message that its
-- queue does not take. If the message is delayed or has a unique key, its headers have an object "weir.queue" that says this; no header of an event can
-- be an object. The mover passes such a message to the queue. wanted is the row's base: not NULL if somebody has its id (tables/050_enqueued.sql).
CREATE OR REPLACE FUNCTION weir.post_unusual_message(
    queue text, definition json, key bytea, value bytea, headers jsonb, delay interval, at timestamptz, priority int, unique_key text, me xid8, wanted bigint
) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    levels     int := coalesce((definition -> 'settings' ->> 'priorities')::int, 1);
    about      weir.topic;
    now        bigint;
    due        bigint;
    size       bigint; -- of the row
    event      bigint; -- of the batch of the message, with the headers that its queue adds (use/queue/enqueue.go)
    century    CONSTANT bigint := 100 * 365 * 86400000::bigint;
BEGIN
    IF value IS NULL THEN
        RAISE 'value is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'A message may be empty, but not null.';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND levels - 1 THEN
        RAISE 'priority is %, but queue "%" has the priorities 0 to %', priority, queue, levels - 1 USING ERRCODE = 'invalid_parameter_value';
    ELSIF unique_key IS NOT NULL AND NOT coalesce((definition -> 'settings' ->> 'unique')::boolean, false) THEN
        RAISE 'queue "%" does not have the setting unique', queue
        USING ERRCODE = 'invalid_parameter_value', HINT = format('Turn it on: weir queue alter %s --unique', queue);
    ELSIF octet_length(unique_key) NOT BETWEEN 1 AND 512 THEN
        RAISE 'unique_key has % bytes', octet_length(unique_key) USING ERRCODE = 'invalid_parameter_value', HINT = 'It must have 1 to 512 bytes.';
    ELSIF delay IS NOT NULL AND at IS NOT NULL THEN
        RAISE 'delay and at are both given' USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one of them.';
    ELSIF delay < interval '0' OR extract(epoch FROM delay) * 1000 > century THEN
        RAISE 'delay is %', delay USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 0 to 100 years of 365 days.';
    ELSIF at > clock_timestamp() + interval '36500 days' THEN
        RAISE 'at is %', at USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be at most 100 years of 365 days from now.';
    END IF;

    about := weir.find_level(queue, definition, priority);
    IF delay > interval '0' OR at > '-infinity' THEN
        now := weir.queue_time();
        due := CASE WHEN at IS NULL THEN now + extract(epoch FROM delay) * 1000 ELSE extract(epoch FROM at) * 1000 END;
    END IF;
    headers := weir.headers_of_new(headers);
    event := weir.overhead(headers) + coalesce(octet_length(key), 0) + octet_length(value)
        + CASE WHEN unique_key IS NULL THEN 0 ELSE 110 END + CASE priority WHEN 0 THEN 0 ELSE 22 END;
    IF event > about.event_max THEN
        PERFORM weir.too_large(about.name, event, about.event_max);
    END IF;
    IF due > now OR unique_key IS NOT NULL THEN
        headers := coalesce(headers, '{}') || jsonb_build_object('weir.queue', jsonb_strip_nulls(jsonb_build_object(
            'name', queue, 'due', CASE WHEN due > now THEN due END, 'priority', priority, 'unique', unique_key)));
    ELSIF priority > 0 THEN
        headers := coalesce(headers, '{}') || jsonb_build_object('weir.queue.priority', priority::text);
    END IF;
    size := weir.overhead(headers) + coalesce(octet_length(key), 0) + octet_length(value);
    IF unique_key IS NOT NULL THEN
        -- weir reads the store for each of them, and other messages of the same key wait for it. So a look returns at most 512
        -- of them, or 64 of those with keys, because all other events wait while they are moved.
        size := size + CASE WHEN key IS NULL THEN 8192 ELSE 65536 END;
    END IF;
    INSERT INTO weir.inbox (xact, topic, key, value, headers, size, base) VALUES (me, about.id, key, value, headers, size, wanted);
END $$;
