-- create_queue asks weir to create a work queue, if the transaction commits. topic has its messages (default: one of the queue's name), with so many partitions if it must be created (default
-- 4); settings: an object with the names of POST /v1/queues, such as {"attempts": 5, "lease_ms": 60000}. Messages can be enqueued in the same transaction. It returns the request's id in
-- weir.creations.
CREATE OR REPLACE FUNCTION weir.create_queue(name text, topic text DEFAULT NULL, partitions int DEFAULT NULL, settings jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    definition json;
    request    bigint;
    levels     int;
    s          record;
BEGIN
    PERFORM weir.check_new('queue', name, 244, partitions, settings), weir.check_new('topic', coalesce(topic, name), 249, NULL, NULL);
    SELECT weir.json_of_value(d.value) INTO definition FROM weir.newest_state('queue/def/' || name) AS d;
    IF definition IS NOT NULL THEN
        IF topic <> definition ->> 'topic' THEN
            PERFORM weir.refuse_other('queue', name, 'topic', definition ->> 'topic', topic);
        END IF;
        -- The definition leaves out what is false or 0. weir compares the others: they are times.
        FOR s IN
            SELECT a.key, a.value, coalesce(definition -> 'settings' ->> a.key, CASE a.key WHEN 'priorities' THEN '1' WHEN 'concurrency' THEN '0' WHEN 'rate' THEN '0' ELSE 'false' END) AS is_now
            FROM jsonb_each_text(settings) AS a
            WHERE a.key IN ('attempts', 'window', 'unique', 'key_order', 'keep_done', 'drop_expired', 'concurrency', 'priorities')
        LOOP
            IF s.value <> s.is_now AND NOT (s.key = 'attempts' AND starts_with(s.value, '-') AND starts_with(s.is_now, '-')) THEN
                PERFORM weir.refuse_other('queue', name, s.key, s.is_now, s.value);
            END IF;
        END LOOP;
    END IF;
    request := weir.post_creation('queue', name, jsonb_build_object('topic', topic, 'partitions', partitions, 'settings', settings));
    levels := CASE WHEN settings ->> 'priorities' ~ '^[1-8]$' THEN (settings ->> 'priorities')::int ELSE 1 END;
    PERFORM weir.reserve(request, coalesce(topic, name), coalesce(partitions, 4), '{}');
    FOR n IN 1..levels - 1 LOOP
        PERFORM weir.reserve(request, format('%s.p%s', name, n), coalesce(partitions, 4), '{}');
    END LOOP;
    RETURN request;
END $$;
