-- forget_consumers deletes positions of deleted topics, up to a limit, and returns how many. A topic's id is never used again: a topic that
-- is created again with the old name has none of these positions. It uses one snapshot, and a position is written after its topic: so it never deletes
-- positions of a new topic. Rows that consumers' transactions have locked are left for the next time. The plan: both tables once, joined by hash.
CREATE OR REPLACE FUNCTION weir.forget_consumers(most int) RETURNS bigint
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    forgotten bigint;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT c.id FROM weir.consumer c
        WHERE NOT EXISTS (SELECT FROM weir.topic t WHERE t.id = c.topic)
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ), positions AS (
        DELETE FROM weir.consumed x USING gone g WHERE x.consumer = g.id
    )
    DELETE FROM weir.consumer c USING gone g WHERE c.id = g.id;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
