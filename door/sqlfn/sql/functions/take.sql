-- take deletes rows of the inbox, for whoever puts what was made of them into the log. It tells false, and has done nothing, where another
-- mover is at it or was there before; the whole is undone with WE090 where it was there in between.
CREATE OR REPLACE FUNCTION weir.take(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    deleted bigint;
BEGIN
    PERFORM FROM weir.mover m FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR cardinality(ids) > 0 AND NOT EXISTS (SELECT FROM weir.inbox i WHERE i.id = ids[1]) THEN
        RETURN false;
    END IF;
    DELETE FROM weir.inbox i WHERE i.id = ANY (ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted <> cardinality(ids) THEN
        RAISE 'another mover took % of % rows', cardinality(ids) - deleted, cardinality(ids) USING ERRCODE = 'WE090';
    END IF;
    RETURN true;
END $$;
