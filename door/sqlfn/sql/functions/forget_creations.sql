-- forget_creations deletes requests that ended more than 30 days ago, and the ids that were reserved for them, unless rows of the inbox wait for them. It returns how many it deleted.
CREATE OR REPLACE FUNCTION weir.forget_creations(most int) RETURNS bigint
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    forgotten bigint;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT c.id FROM weir.creation c
        WHERE c.done_at < clock_timestamp() - interval '30 days'
          AND NOT EXISTS (SELECT FROM weir.reserved r JOIN weir.inbox i ON i.topic = r.id WHERE r.creation = c.id)
        LIMIT most
    ), ids AS (
        DELETE FROM weir.reserved r USING gone g WHERE r.creation = g.id
    )
    DELETE FROM weir.creation c USING gone g WHERE c.id = g.id;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
