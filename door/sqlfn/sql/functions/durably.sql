-- durably makes the calling transaction wait for the disk when it commits, even if the session turned that off. It is for rows that weir acts on before they are moved
-- (acks, positions of groups): a crash must not undo what others have seen. A commit becomes visible when the wait is over.
CREATE OR REPLACE FUNCTION weir.durably() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- for this transaction
    END IF;
END $$;
