-- newest_state is the newest version of a key's row (tables/001_tables.sql): none where there is no such key. The planner puts its query in
-- place of the call.
CREATE OR REPLACE FUNCTION weir.newest_state(key text) RETURNS SETOF weir.state
LANGUAGE sql STABLE
ROWS 1
BEGIN ATOMIC
    SELECT s.* FROM weir.state s WHERE s.key = newest_state.key ORDER BY s.turn DESC LIMIT 1;
END;
