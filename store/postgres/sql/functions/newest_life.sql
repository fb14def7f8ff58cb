-- newest_life is life as the statement that calls it sees it. The planner inlines it, so the caller
-- needs :by_index.
CREATE OR REPLACE FUNCTION weir.newest_life() RETURNS TABLE (server bigint, tables bigint, epoch bigint)
LANGUAGE sql STABLE
ROWS 1
BEGIN ATOMIC
    SELECT CASE WHEN NOT pg_is_in_recovery() THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END,
           d.oid::bigint << 32 | 'weir.partition'::regclass::oid::bigint,
           coalesce((SELECT s.version FROM weir.newest_state('incarnation') AS s), 0)
    FROM pg_database AS d
    WHERE d.datname = current_database();
END;
