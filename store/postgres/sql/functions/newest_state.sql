-- newest_state returns the newest version of a key's row (tables/001_tables.sql), or nothing if the key does not exist.
-- The planner inlines it.
CREATE OR REPLACE FUNCTION weir.newest_state(key text) RETURNS SETOF weir.state
LANGUAGE sql STABLE
ROWS 1
BEGIN ATOMIC
    SELECT s.* FROM weir.state s WHERE s.key = newest_state.key ORDER BY s.turn DESC LIMIT 1;
END;
