-- topic_spans returns the partitions of a topic that have records from an offset on; or, for the tail, the spans of their last records.
CREATE OR REPLACE FUNCTION weir.topic_spans(want_topic text, want_partition int, want_from bigint, want_most bigint, tail boolean)
RETURNS TABLE (partition int, id bigint, low bigint, high bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
ROWS 4
:by_index
AS $$
DECLARE
    about weir.topic := weir.find_topic(want_topic);
BEGIN
    IF want_from IS NULL AND NOT tail THEN
        RAISE 'from_offset is null' USING ERRCODE = 'null_value_not_allowed', HINT = '0 reads from the beginning.';
    ELSIF want_from < 0 THEN
        RAISE 'from_offset is %', want_from
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Offsets begin at 0. weir.last_events reads from the end.';
    ELSIF want_most IS NULL AND tail THEN
        RAISE 'max_events is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'To read all events, use weir.events.';
    ELSIF want_most < 0 THEN
        RAISE 'max_events is %', want_most USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be 0 or more.';
    ELSIF want_partition IS NOT NULL THEN
        PERFORM weir.check_partition(about, want_partition);
    END IF;
    RETURN QUERY
    SELECT spans.*
    FROM (
        SELECT (u.nth - 1)::int, x.id,
               greatest(x.first_offset, CASE WHEN tail THEN x.next_offset - least(want_most, x.next_offset) ELSE want_from END) AS low,
               x.next_offset AS high
        FROM unnest(about.partitions) WITH ORDINALITY AS u(id, nth)
        CROSS JOIN LATERAL weir.newest_partition(u.id) AS x
        WHERE want_partition IS NULL OR u.nth = want_partition + 1
        ORDER BY u.nth
    ) AS spans
    WHERE spans.low < spans.high;
END $$;
