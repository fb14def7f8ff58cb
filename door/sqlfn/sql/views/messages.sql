-- messages has a row for each ready, claimed or waiting message of a queue. It has no rows for messages that are done, dead, or delayed for more than
-- a minute. A row has the topic, partition and offset of the message: weir.events returns the rest.
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
