-- incarnation identifies the server and its life since its last start or crash. 0: nobody has written the row since the last crash.
CREATE OR REPLACE FUNCTION weir.incarnation() RETURNS bigint
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    RETURN coalesce((SELECT hashtextextended(format('%s %s %s', i.id, extract(epoch FROM pg_postmaster_start_time()), d.oid), 0)
                     FROM weir.incarnation i, pg_database d WHERE d.datname = current_database()), 0);
END $$;
