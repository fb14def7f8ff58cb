-- durably has the transaction that calls it wait for the disk when it commits, whatever its session prefers. For what weir acts on before it is moved
-- (an ack, a group's position): a crash must not take back what others have seen. Commits become visible when the wait is over.
CREATE OR REPLACE FUNCTION weir.durably() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- for this transaction
    END IF;
END $$;
