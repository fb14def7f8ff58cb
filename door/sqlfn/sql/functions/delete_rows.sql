-- delete_rows deletes rows of the inbox, for a caller that moves them into the log in the same transaction. It returns false, and does nothing, if another
-- mover is working, or has already moved the rows. It fails with WE090, and undoes everything, if another mover worked in between.
CREATE OR REPLACE FUNCTION weir.delete_rows(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    places  tid[];
    deleted bigint;
BEGIN
    PERFORM FROM weir.mover m FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    places := ARRAY(SELECT r.place FROM weir.find_rows(ids) AS r); -- nobody else deletes rows, or changes their ctids, while we have the lock
    IF cardinality(places) = 0 AND cardinality(ids) > 0 THEN
        RETURN false;
    END IF;
    DELETE FROM weir.inbox i WHERE i.ctid = ANY (places);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted <> cardinality(ids) THEN
        RAISE 'another mover took % of % rows', cardinality(ids) - deleted, cardinality(ids) USING ERRCODE = 'WE090';
    END IF;
    RETURN true;
END $$;
