-- newest_partition returns the newest version of a partition's row (tables/001_tables.sql), or nothing if the partition
-- does not exist. The planner inlines it. A view cannot use it: the query would run with the rights of the reader of the
-- view.
CREATE OR REPLACE FUNCTION weir.newest_partition(id bigint) RETURNS SETOF weir.partition
LANGUAGE sql STABLE
ROWS 1
BEGIN ATOMIC
    SELECT x.* FROM weir.partition x WHERE x.id = newest_partition.id ORDER BY x.turn DESC LIMIT 1;
END;
