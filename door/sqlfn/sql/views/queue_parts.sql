-- queue_parts has a row for each partition of a queue's topics, with its state (use/claims/codec.go): floor, next, and the runs between them.
-- It is for the views queues and messages, which read the runs with weir.queue_runs.
CREATE OR REPLACE VIEW weir.queue_parts AS
SELECT d.queue,
       d.about ->> 'id' AS queue_id,
       p.topic,
       p.partition,
       p.id, -- in weir.partition
       p.first_offset,
       p.next_offset,
       coalesce((s.part ->> 'floor')::bigint, p.first_offset) AS floor,
       greatest((s.part ->> 'next')::bigint, p.first_offset) AS next,
       s.part -> 'runs' AS runs,
       s.texts
FROM (
    SELECT substr(s.key, 11) AS queue, convert_from(s.value, 'UTF8')::json AS about
    FROM weir.state s WHERE s.key >= 'queue/def/' AND s.key < 'queue/def0'
    OFFSET 0
) AS d
CROSS JOIN LATERAL (
    SELECT (d.about ->> 'topic_id')::uuid AS id
    UNION ALL
    SELECT l.id::uuid FROM json_array_elements_text(d.about -> 'levels') AS l(id)
) AS level
JOIN weir.topic t ON t.id = level.id
JOIN weir.partitions p ON p.topic = t.name
LEFT JOIN LATERAL (
    -- The value has text from clients. PostgreSQL's text can have any character except the zero character.
    SELECT e.part, s.value -> 'texts' AS texts
    FROM (
        SELECT replace(convert_from(x.value, 'UTF8'), '\u0000', '\ufffd')::json AS value FROM weir.state x
        WHERE x.key IN (format('queue/state/%s/%s', d.about ->> 'id', p.id), format('queue/state/%s/all', d.about ->> 'id')) -- a queue with limits has one state for all partitions
        OFFSET 0 -- evaluate this first: the values of other keys are not JSON
    ) AS s
    CROSS JOIN LATERAL json_array_elements(s.value -> 'parts') AS e(part)
    WHERE (e.part ->> 'partition')::bigint = p.id
) AS s ON true;
