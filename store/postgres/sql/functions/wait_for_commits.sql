-- wait_for_commits waits until every transaction that writes to the log has ended, and keeps others from
-- beginning until the caller's transaction ends. If one of them lasts too long it fails with WE094, and names it.
CREATE OR REPLACE FUNCTION weir.wait_for_commits() RETURNS void
LANGUAGE plpgsql
:pinned
SET lock_timeout = '5s'
AS $$
DECLARE
    whom text;
BEGIN
    LOCK TABLE weir.epoch IN SHARE ROW EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available THEN
    SELECT string_agg(format('pid %s (%s, %s, %s, since %s)', l.pid, a.usename, a.application_name,
                             coalesce(a.wait_event_type || ' ' || a.wait_event, a.state), a.xact_start), ', ' ORDER BY a.xact_start)
    INTO whom
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.relation = 'weir.epoch'::regclass AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.granted AND l.pid <> pg_backend_pid();
    RAISE 'a leader epoch begins only after the commits in progress have ended, and these have not: %', coalesce(whom, 'none any more')
    USING ERRCODE = 'WE094', HINT = 'A commit waits for its standby, its disk or a lock. If it hangs: SELECT pg_terminate_backend(pid).';
END $$;
