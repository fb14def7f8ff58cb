-- Reading the log with SQL: weir.events and weir.last_events give one row for each record.
--
--   events ── span_events ─┬─ topic_spans  which partitions, from where to where
--                          ├─ stretch      cuts a span into stretches of whole batches, one at a time, as rows are asked for
--                          └─ decode       the records of one stretch
--
-- events is one SELECT, which the planner puts in place of the call. So rows flow: LIMIT ends the reading, and only one stretch is
-- in memory. A function in PL/pgSQL gathers all its rows before it gives the first.
--
-- All of it sees the snapshot of the caller's statement: nothing that came after it began.

-- events reads a topic from an offset on: one partition, or one after the other; all there is, or at most so many rows. An offset
-- that is not held any more reads from the first that is; one that is not there yet reads nothing.
CREATE OR REPLACE FUNCTION weir.events(topic text, from_offset bigint DEFAULT 0, partition int DEFAULT NULL, max_events bigint DEFAULT NULL)
RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.*
    FROM weir.topic_spans(events.topic, events.partition, events.from_offset, events.max_events, false) AS s
    CROSS JOIN LATERAL weir.span_events(s.partition, s.id, s.low, s.high) AS e
    LIMIT CASE WHEN events.max_events >= 0 THEN events.max_events END; -- topic_spans refuses the others
END;
