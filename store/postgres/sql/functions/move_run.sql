-- move_run takes one run of a segment, and copies the batches that are still needed into the segment of survivors. It
-- returns false if no run is left, or if another process is sweeping. Commits to the partition are not blocked: its row is
-- not changed.
CREATE OR REPLACE FUNCTION weir.move_run(victim int) RETURNS boolean
LANGUAGE plpgsql
:by_index
SET enable_sort = off
AS $$
DECLARE
    r      weir.run;
    low    bigint;
    target int;
BEGIN
    PERFORM FROM weir.guard g WHERE g.number = 65 FOR NO KEY UPDATE SKIP LOCKED; -- one process sweeps at a time
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT s.number INTO target FROM weir.segment s WHERE s.sealed_at IS NULL AND s.survivors;
    SELECT * INTO r FROM weir.run x
    WHERE x.segment >= victim AND x.segment <= victim
    ORDER BY x.segment, - x.partition_id, - x.next_offset LIMIT 1; -- the order of the index run_segment, so that the primary key cannot be used
    IF target IS NULL OR r.segment IS NULL THEN
        RETURN false;
    END IF;
    SELECT x.first_offset INTO low FROM weir.newest_partition(r.partition_id) AS x;
    EXECUTE format('INSERT INTO weir.batch_%s
                    SELECT * FROM weir.batch_%s
                    WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND base_offset + records > $4
                    ORDER BY base_offset, piece', target, victim)
    USING r.partition_id, r.first_offset, r.next_offset, low;
    -- The run may have been trimmed since. Then nothing refers to the copy, and it is deleted with its segment.
    UPDATE weir.run x SET segment = target
    WHERE x.partition_id = r.partition_id AND x.next_offset = r.next_offset AND x.segment + 0 = victim; -- by the primary key
    RETURN true;
END $$;
