-- forget_consumers removes positions of topics that are gone, at most so many, and tells how many. A topic's id never comes back: one that
-- is made anew under the old name has none of them. All is seen in one snapshot, and a position comes after its topic: so none is taken for
-- gone whose topic is young. What a consumer's transaction holds is left for the next time. The plan: both tables once, joined by hash.
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
