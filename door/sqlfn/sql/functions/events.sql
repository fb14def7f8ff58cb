-- events reads a topic from an offset on: one partition, or all, one after the other; all events, or at most max_events. If from_offset is
-- no longer in the partition, it reads from the first offset that is; if it is past the end, it reads nothing.
--
-- Reading the log with SQL: weir.events and weir.last_events return one row for each record.
--
--   events ── span_events ─┬─ topic_spans  which partitions, from where to where
--                          ├─ stretch      cuts a span into stretches of whole batches, one at a time, as rows are asked for
--                          └─ decode       the records of one stretch
--
-- events is one SELECT, which the planner inlines. So rows are returned as they are read: LIMIT ends the reading, and only one stretch is
-- in memory. A function in PL/pgSQL would collect all its rows before it returns the first.
--
-- All of it uses the snapshot of the caller's statement, and sees nothing that was committed after that began.
CREATE OR REPLACE FUNCTION weir.events(topic text, from_offset bigint DEFAULT 0, partition int DEFAULT NULL, max_events bigint DEFAULT NULL)
RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.*
    FROM weir.topic_spans(events.topic, events.partition, events.from_offset, events.max_events, false) AS s
    CROSS JOIN LATERAL weir.span_events(s.partition, s.id, s.low, s.high) AS e
    LIMIT CASE WHEN events.max_events >= 0 THEN events.max_events END; -- topic_spans refuses the others
END;
