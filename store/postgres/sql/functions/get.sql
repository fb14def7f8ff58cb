-- get returns a row for each key, numbered from 1, in their order; version 0: there is no such key. It ends before the first value with which the values
-- would take more than most bytes, but returns at least one row.
CREATE OR REPLACE FUNCTION weir.get(keys text[], most bigint)
RETURNS TABLE (version bigint, value bytea, age_us bigint, now_ms bigint)
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    s     weir.state;
    left_ bigint := most;
BEGIN
    FOR n IN 1..cardinality(keys) LOOP
        SELECT * INTO s FROM weir.newest_state(keys[n]);
        left_ := left_ - coalesce(octet_length(s.value), 0);
        EXIT WHEN n > 1 AND left_ < 0;
        version := coalesce(s.version, 0);
        value := s.value;
        age_us := (extract(epoch FROM clock_timestamp() - s.put_at) * 1000000)::bigint;
        now_ms := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
        RETURN NEXT;
    END LOOP;
END $$;
