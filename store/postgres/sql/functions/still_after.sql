-- still_after is still for statements that write, which need no other check. still sees what was
-- committed when its statement began; still_after sees what is committed when the statement has its
-- locks: one that waited for a lock while another process began an epoch fails. So it must come
-- after the locks: in the WHERE of a SELECT FROM the function that takes them, for without FROM it
-- is called first. Commits that begin an epoch wait for all that write (weir.commit): after such a
-- commit, nothing of an earlier incarnation is committed. An epoch that the transaction itself
-- begins does not count.
CREATE OR REPLACE FUNCTION weir.still_after(server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
:by_index
AS $$
DECLARE
    l record;
BEGIN
    SELECT * INTO l FROM weir.newest_life();
    IF server IS NULL OR (server, tables, epoch) IS NOT DISTINCT FROM (l.server, l.tables, l.epoch) THEN
        RETURN true;
    ELSIF (server, tables) IS DISTINCT FROM (l.server, l.tables) THEN
        RAISE 'the store was rewound: it is in another incarnation than this process knows' USING ERRCODE = 'WE093';
    ELSIF NOT EXISTS (SELECT FROM weir.state s WHERE s.key = 'incarnation' AND s.xmin = pg_current_xact_id_if_assigned()::xid) THEN
        RAISE 'the store was rewound: another process began an epoch while this statement waited' USING ERRCODE = 'WE093';
    END IF;
    RETURN true;
END $$;
