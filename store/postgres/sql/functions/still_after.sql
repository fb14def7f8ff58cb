-- still_after is still for statements that write. still sees what was committed when its statement began; still_after sees what is committed when the statement has its
-- locks: one that waited for a lock while another process began an epoch fails. Commits that begin an epoch wait for all that write (weir.commit): after such a commit,
-- nothing of an earlier incarnation is committed. An epoch that the transaction itself begins does not count.
CREATE OR REPLACE FUNCTION weir.still_after(server bigint, tables bigint, epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
:by_index
AS $$
DECLARE
    now_at bigint;
    mine   boolean;
BEGIN
    SELECT s.version, s.xmin = pg_current_xact_id_if_assigned()::xid INTO now_at, mine
    FROM weir.state s WHERE s.key = 'incarnation' ORDER BY s.turn DESC LIMIT 1;
    IF server IS NOT NULL AND epoch <> coalesce(now_at, 0) AND mine IS NOT TRUE THEN
        RAISE 'the store was rewound: another process began an epoch while this statement waited' USING ERRCODE = 'WE093';
    END IF;
    RETURN true;
END $$;
