-- last_events reads the last records, up to a number, of one partition, or of each.
CREATE OR REPLACE FUNCTION weir.last_events(topic text, max_events bigint DEFAULT 10, partition int DEFAULT NULL)
RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT e.*
    FROM weir.topic_spans(last_events.topic, last_events.partition, NULL, last_events.max_events, true) AS s
    CROSS JOIN LATERAL weir.span_events(s.partition, s.id, s.low, s.high) AS e;
END;
