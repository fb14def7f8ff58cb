-- unchanged makes the statement that calls it fail, as a whole, if the database is not the one that a look read: the server crashed since
-- (incarnation), or the store is in another incarnation (still). Then the ids may belong to other rows, and rows of events that sessions committed without
-- waiting for the disk may be lost, although a look returned them. Acks and positions are used outside such statements, too: see durably.
CREATE OR REPLACE FUNCTION weir.unchanged(crash bigint, server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF crash IS DISTINCT FROM weir.incarnation() THEN
        RAISE 'the server crashed after the inbox was read' USING ERRCODE = 'WE093';
    END IF;
    RETURN weir.still(server, tables, epoch);
END $$;
