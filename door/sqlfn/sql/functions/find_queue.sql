-- find_queue returns the definition of a work queue (use/queue/definition.go).
CREATE OR REPLACE FUNCTION weir.find_queue(queue text) RETURNS json
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    definition json;
BEGIN
    IF queue IS NULL THEN
        RAISE 'queue is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the name of the queue.';
    ELSIF length(queue) NOT BETWEEN 1 AND 244 OR queue ~ '[^a-zA-Z0-9._-]' THEN -- otherwise it would differ from the name in the key
        RAISE '"%" is not a valid name of a queue', left(queue, 64)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'A name has 1 to 244 of the characters a-z, A-Z, 0-9, ".", "_" and "-".';
    END IF;
    SELECT weir.json_of_value(s.value) INTO definition FROM weir.newest_state('queue/def/' || queue) AS s;
    IF definition IS NULL THEN -- perhaps a waiting request will create it
        SELECT json_build_object(
            'topic', coalesce(c.spec ->> 'topic', c.name), 'topic_id', weir.id_of_topic(coalesce(c.spec ->> 'topic', c.name)),
            'levels', ARRAY(SELECT weir.id_of_topic(format('%s.p%s', c.name, n))
                            FROM generate_series(1, CASE WHEN c.spec -> 'settings' ->> 'priorities' ~ '^[1-8]$' THEN (c.spec -> 'settings' ->> 'priorities')::int ELSE 1 END - 1) AS n),
            'settings', c.spec -> 'settings')
        INTO definition
        FROM weir.creation c WHERE c.kind = 'queue' AND c.name = queue AND c.state = 'waiting' ORDER BY c.id DESC LIMIT 1;
    END IF;
    IF definition IS NULL THEN
        RAISE 'queue "%" does not exist', queue
        USING ERRCODE = 'WE007', HINT = format('Create it first: weir queue create %s', queue);
    END IF;
    RETURN definition;
END $$;
