-- life tells in which incarnation the store is, whether it may have lost its end (eventlog/store.go): since when the server runs, NULL for a
-- standby, which is nobody's store; which tables these are; and the epoch.
--
-- A server that was promoted, restored or recovered was started for that, and so runs since another microsecond. A dump that was restored under a
-- running server makes new tables. What only an epoch tells was noticed by a process: it put the key.
CREATE OR REPLACE FUNCTION weir.life(OUT server bigint, OUT tables bigint, OUT epoch bigint)
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF NOT pg_is_in_recovery() THEN
        server := extract(epoch FROM pg_postmaster_start_time()) * 1000000;
    END IF;
    SELECT d.oid::bigint << 32 | 'weir.partition'::regclass::oid::bigint INTO tables FROM pg_database d WHERE d.datname = current_database();
    epoch := coalesce((SELECT s.version FROM weir.newest_state('incarnation') s), 0);
END $$;
