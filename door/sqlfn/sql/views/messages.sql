-- messages has a row for each ready, claimed or waiting message of a queue. It has no rows for messages that are done, dead, or delayed for more than
-- a minute. A row has the topic, partition and offset of the message: weir.events returns the rest.
CREATE OR REPLACE VIEW weir.messages AS
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
    SELECT generate_series(greatest(x.upto - x.n, q.first_offset), x.upto - 1) AS "offset", x.fate, x.attempt,
           to_timestamp(nullif(x.until, 0) / 1000.0) AS until, x.worker, x.reason AS error
    FROM weir.queue_runs(q.floor, q.runs, q.texts) AS x
    WHERE x.fate <> 'done'
    UNION ALL
    SELECT generate_series(coalesce(q.next, q.first_offset), q.next_offset - 1), NULL, 0, NULL, NULL, NULL
) AS m;
