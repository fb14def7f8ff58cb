-- hold reserves a key for the caller's transaction. Until that ends, commit refuses entries with a holdable check of the key, and other calls of hold wait.
-- hold itself waits for the commits that have checked the key, which takes milliseconds. After that, only commits that carry rows of weir.held change the key.
--
-- The transaction must be READ COMMITTED, and read the key in a statement after this one: then it sees what these commits did.
CREATE OR REPLACE FUNCTION weir.hold(key text) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(weir.lock_number(key, s.secret)) FROM weir.secret s WHERE s.one;
END $$;
