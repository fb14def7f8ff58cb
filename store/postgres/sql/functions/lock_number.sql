-- lock_number returns the number of a key's advisory lock. Nobody can compute it without the secret (tables/033_held.sql). While the lock is held, pg_locks shows it.
-- The planner inlines it.
CREATE OR REPLACE FUNCTION weir.lock_number(key text, secret bytea) RETURNS bigint
LANGUAGE sql STABLE
RETURN ('x' || encode(substring(sha256(secret || convert_to(key, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint;
