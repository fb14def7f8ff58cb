-- queues has a row for each work queue: how many messages it has in each state.
CREATE OR REPLACE VIEW weir.queues AS
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
            FROM weir.queue_runs(q.floor, q.runs, q.texts) AS x
            WHERE x.fate <> 'done' AND x.upto > q.first_offset -- without messages that retention deleted
        ) AS m
    ) AS r
    WHERE q.queue = d.queue
) AS c ON true
LEFT JOIN LATERAL (
    -- Dead letters that were neither redriven nor discarded.
    SELECT sum(greatest(0, p.next_offset - greatest((s.part ->> 'next')::bigint, p.first_offset)) + coalesce((
        SELECT sum(x.n) FROM weir.queue_runs(0, s.part -> 'runs', NULL) AS x WHERE x.fate <> 'done'), 0))::bigint AS dead
    FROM weir.partitions p
    LEFT JOIN LATERAL (
        SELECT e.part
        FROM (SELECT x.value FROM weir.state x WHERE x.key = format('queue/dead/%s/%s', d.about ->> 'id', p.id) OFFSET 0) AS s
        CROSS JOIN LATERAL json_array_elements(replace(convert_from(s.value, 'UTF8'), '\u0000', '\ufffd')::json -> 'parts') AS e(part)
    ) AS s ON true
    WHERE p.topic = d.queue || '.dlt'
) AS l ON true;
