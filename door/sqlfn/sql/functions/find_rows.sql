-- find_rows returns the ctids of those rows of the inbox that exist. If autoanalyze ran when the inbox was empty, all its indexes look alike to the planner, and
-- it could scan all of inbox_xact, which has id second, for each id. But only the primary key returns rows in the order of ids, and
-- the planner does not know that the bounds leave just one row to sort.
CREATE OR REPLACE FUNCTION weir.find_rows(ids bigint[]) RETURNS TABLE (id bigint, place tid)
LANGUAGE plpgsql STABLE
:by_index
SET plan_cache_mode = force_generic_plan
SET enable_sort = off
AS $$
BEGIN
    RETURN QUERY
    SELECT i.id, i.place
    FROM unnest(ids) AS u(id)
    CROSS JOIN LATERAL (
        SELECT w.id, w.ctid AS place FROM weir.inbox w WHERE w.id >= u.id AND w.id <= u.id ORDER BY w.id LIMIT 1
    ) AS i;
END $$;
