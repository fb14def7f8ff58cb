-- life returns the incarnation of the store, to detect a rewind (eventlog/store.go): the start time of the server, NULL for
-- a standby, which no store uses; an id of the tables; and the epoch.
--
-- A server that was promoted, restored or recovered has another start time. A dump that is restored into a running server
-- creates new tables. If a rewind changes neither, a process notices it, and puts the key of the epoch.
CREATE OR REPLACE FUNCTION weir.life(OUT server bigint, OUT tables bigint, OUT epoch bigint)
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    SELECT l.server, l.tables, l.epoch INTO server, tables, epoch FROM weir.newest_life() AS l;
END $$;
