-- still fails the statement that it is part of if the store is in another incarnation (life). NULL: Moved was not called
-- yet.
CREATE OR REPLACE FUNCTION weir.still(server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF server IS NOT NULL AND (server, tables, epoch) IS DISTINCT FROM (SELECT (l.server, l.tables, l.epoch) FROM weir.life() AS l) THEN
        RAISE 'the store is in another incarnation than its process knows of' USING ERRCODE = 'WE093';
    END IF;
    RETURN true;
END $$;
