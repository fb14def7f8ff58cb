-- enroll records that a store value listens. It deletes old rows, which are of processes that were killed.
CREATE OR REPLACE FUNCTION weir.enroll(nonce text, long interval) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    INSERT INTO weir.listener AS l VALUES (enroll.nonce, clock_timestamp())
    ON CONFLICT ON CONSTRAINT listener_pkey DO UPDATE SET heard_at = excluded.heard_at;
    DELETE FROM weir.listener l WHERE l.heard_at < clock_timestamp() - long;
END $$;
