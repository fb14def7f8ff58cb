-- unchanged refuses the statement that it is part of, as a whole, where the database is not the one that a look found: the server crashed since
-- (incarnation), or the store is in another incarnation (still). Ids of rows may stand for others then; and rows of events that sessions committed without
-- waiting for the disk may be lost, though a look found them. Acks and positions are acted on outside of such a statement, too: see durably.
CREATE OR REPLACE FUNCTION weir.unchanged(crash bigint, server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF crash IS DISTINCT FROM weir.incarnation() THEN
        RAISE 'the server crashed since the inbox was looked into' USING ERRCODE = 'WE093';
    END IF;
    RETURN weir.still(server, tables, epoch);
END $$;
