-- still makes its statement fail if the store is in another incarnation (life) than the caller. server is NULL: Changes was
-- not called yet, and nothing is checked.
CREATE OR REPLACE FUNCTION weir.still(server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF server IS NOT NULL AND (server, tables, epoch) IS DISTINCT FROM (SELECT (l.server, l.tables, l.epoch) FROM weir.newest_life() AS l) THEN
        RAISE 'the store was rewound: it is in another incarnation than this process knows' USING ERRCODE = 'WE093';
    END IF;
    RETURN true;
END $$;
