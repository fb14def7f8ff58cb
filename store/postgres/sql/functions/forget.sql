-- forget deletes a partition.
CREATE OR REPLACE FUNCTION weir.forget(partition bigint) RETURNS boolean
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    p weir.partition;
BEGIN
    p := weir.lock_partition(partition);
    DELETE FROM weir.run r WHERE r.partition_id = p.id;
    DELETE FROM weir.partition x WHERE x.id = p.id AND x.turn = p.turn;
    RETURN FOUND;
END $$;
