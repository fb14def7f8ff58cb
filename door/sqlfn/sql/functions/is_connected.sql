-- is_connected reports whether there is a session with a pid.
CREATE OR REPLACE FUNCTION weir.is_connected(pid int) RETURNS boolean
LANGUAGE plpgsql STABLE
:pinned
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_stat_get_activity(is_connected.pid));
END $$;
