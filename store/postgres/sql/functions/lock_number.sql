-- lock_number returns the number of a key's advisory lock. No other session can compute it. While the lock is held, pg_locks shows it.
CREATE OR REPLACE FUNCTION weir.lock_number(key text) RETURNS bigint
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    RETURN (SELECT ('x' || encode(substring(sha256(s.secret || convert_to(key, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint FROM weir.secret s WHERE s.one);
END $$;
