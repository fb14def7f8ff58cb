CREATE OR REPLACE FUNCTION weir.span_events(partition int, id bigint, low bigint, high bigint) RETURNS SETOF weir.event
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE walk(low, high) AS (
        SELECT span_events.low, weir.stretch(span_events.id, span_events.low, span_events.high)
        UNION ALL
        SELECT w.high, weir.stretch(span_events.id, w.high, span_events.high) FROM walk AS w WHERE w.high < span_events.high
    )
    SELECT span_events.partition, e."offset", e."timestamp", e.key, e.key_text, e.value, e.value_text, e.headers, e.compression, e.records
    FROM walk AS w
    CROSS JOIN LATERAL weir.decode(span_events.id, w.low, w.high) AS e
    WHERE CASE WHEN e.records > 0 THEN true ELSE weir.damaged(span_events.id, e."offset", w.high) END;
END;
