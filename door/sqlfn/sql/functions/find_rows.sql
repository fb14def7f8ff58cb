-- find_rows tells where rows of the inbox lie, of those that are there. Once autoanalyze has seen an empty inbox all of its indexes look alike, and
-- inbox_xact, which has id second, would be walked from end to end for each id. But only the primary key gives rows in the order of ids, and the
-- bounds do not tell the planner that there is just one to sort.
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
