-- lock_partition locks the newest version of a partition's row, as commits do, and returns it; NULLs if the partition
-- does not exist.
CREATE OR REPLACE FUNCTION weir.lock_partition(id bigint) RETURNS weir.partition
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    p weir.partition;
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = lock_partition.id ORDER BY x.turn DESC LIMIT 1 FOR NO KEY UPDATE;
    RETURN p;
END $$;
