-- The views of queues as they were before their states had runs as a text.
CREATE VIEW weir.queue_parts AS
SELECT d.queue,
       d.about ->> 'id' AS queue_id,
       p.topic,
       p.partition,
       p.id, -- in weir.partition
       p.first_offset,
       p.next_offset,
       coalesce((s.part ->> 'floor')::bigint, p.first_offset) AS floor,
       greatest((s.part ->> 'next')::bigint, p.first_offset) AS next,
       s.part -> 'runs' AS runs
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
    SELECT e.part
    FROM (
        SELECT x.value FROM weir.state x
        WHERE x.key IN (format('queue/state/%s/%s', d.about ->> 'id', p.id), format('queue/state/%s/all', d.about ->> 'id')) -- a queue with limits has one state for all partitions
        OFFSET 0 -- evaluate this first: the values of other keys are not JSON
    ) AS s
    CROSS JOIN LATERAL json_array_elements(replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::json -> 'parts') AS e(part)
    WHERE (e.part ->> 'partition')::bigint = p.id
) AS s ON true;
CREATE VIEW weir.queues AS
SELECT d.queue,
       d.about ->> 'id' AS id,
       d.about ->> 'topic' AS topic,
       coalesce((d.about -> 'settings' ->> 'paused')::boolean, false) AS paused,
       coalesce(c.ready, 0) AS ready,
       coalesce(c.claimed, 0) AS claimed,
       coalesce(c.waiting, 0) AS waiting,
       coalesce(l.dead, 0) AS dead
FROM (
    SELECT substr(s.key, 11) AS queue, convert_from(s.value, 'UTF8')::json AS about
    FROM weir.state s WHERE s.key >= 'queue/def/' AND s.key < 'queue/def0'
    OFFSET 0 -- evaluate this first: the values of other keys are not JSON
) AS d
LEFT JOIN LATERAL (
    SELECT (sum(greatest(0, q.next_offset - coalesce(q.next, q.first_offset))) + sum(r.ready))::bigint AS ready,
           sum(r.claimed)::bigint AS claimed,
           sum(r.waiting)::bigint AS waiting
    FROM weir.queue_parts q
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(m.n) FILTER (WHERE NOT m.held), 0) AS ready,
               coalesce(sum(m.n) FILTER (WHERE m.held AND m.fate = 'claimed'), 0) AS claimed,
               coalesce(sum(m.n) FILTER (WHERE m.held AND m.fate = 'waiting'), 0) AS waiting
        FROM (
            SELECT least(x.n, x.upto - q.first_offset) AS n, x.fate, x.until > extract(epoch FROM statement_timestamp()) * 1000 AS held
            FROM (
                SELECT (e.run ->> 'n')::bigint AS n, e.run ->> 'fate' AS fate, coalesce((e.run ->> 'until')::bigint, 0) AS until,
                       q.floor + (sum((e.run ->> 'n')::bigint) OVER (ORDER BY e.nth))::bigint AS upto
                FROM json_array_elements(q.runs) WITH ORDINALITY AS e(run, nth)
            ) AS x
            WHERE x.fate <> 'done' AND x.upto > q.first_offset -- without messages that retention deleted
        ) AS m
    ) AS r
    WHERE q.queue = d.queue
) AS c ON true
LEFT JOIN LATERAL (
    -- Dead letters that were neither redriven nor discarded.
    SELECT sum(greatest(0, p.next_offset - greatest((s.part ->> 'next')::bigint, p.first_offset)) + coalesce((
        SELECT sum((e.run ->> 'n')::bigint) FROM json_array_elements(s.part -> 'runs') AS e(run) WHERE e.run ->> 'fate' <> 'done'), 0))::bigint AS dead
    FROM weir.partitions p
    LEFT JOIN LATERAL (
        SELECT e.part
        FROM (SELECT x.value FROM weir.state x WHERE x.key = format('queue/dead/%s/%s', d.about ->> 'id', p.id) OFFSET 0) AS s
        CROSS JOIN LATERAL json_array_elements(replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::json -> 'parts') AS e(part)
    ) AS s ON true
    WHERE p.topic = d.queue || '.dlt'
) AS l ON true;
CREATE VIEW weir.messages AS
SELECT q.queue,
       q.id || '-' || m."offset" AS id, -- a message that was delayed for longer keeps its first id, which is in its header weir.queue.id
       q.topic,
       q.partition,
       m."offset",
       CASE WHEN m.until > statement_timestamp() THEN m.fate ELSE 'ready' END AS state,
       m.attempt, -- claimed: number of this attempt; otherwise: how many attempts there were
       CASE WHEN m.until > statement_timestamp() THEN m.until END AS until,
       m.worker,
       m.error
FROM weir.queue_parts q
CROSS JOIN LATERAL (
    SELECT generate_series(greatest(x.upto - x.n, q.first_offset), x.upto - 1) AS "offset", x.run ->> 'fate' AS fate, coalesce((x.run ->> 'attempt')::int, 0) AS attempt,
           to_timestamp((x.run ->> 'until')::bigint / 1000.0) AS until, x.run ->> 'worker' AS worker, x.run ->> 'reason' AS error
    FROM (
        SELECT e.run, (e.run ->> 'n')::bigint AS n, q.floor + (sum((e.run ->> 'n')::bigint) OVER (ORDER BY e.nth))::bigint AS upto
        FROM json_array_elements(q.runs) WITH ORDINALITY AS e(run, nth)
    ) AS x
    WHERE x.run ->> 'fate' <> 'done'
    UNION ALL
    SELECT generate_series(coalesce(q.next, q.first_offset), q.next_offset - 1), NULL, 0, NULL, NULL, NULL
) AS m;
