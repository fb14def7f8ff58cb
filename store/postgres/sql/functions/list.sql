-- list returns, in byte order, the first keys (as many as most says) that are at least low, greater than after and below high.
CREATE OR REPLACE FUNCTION weir.list(low text, high text, after text, most int)
RETURNS TABLE (key text, version bigint, value bytea, age_us bigint, now_ms bigint)
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
BEGIN
    RETURN QUERY
    SELECT s.key, s.version, s.value, (extract(epoch FROM clock_timestamp() - s.put_at) * 1000000)::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM weir.state s
    WHERE s.key >= low AND s.key > after AND s.key < high
    ORDER BY s.key
    LIMIT most;
END $$;
