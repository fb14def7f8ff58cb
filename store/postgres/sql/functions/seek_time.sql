-- seek_time returns the base offset of the first batch whose newest record is not older than a time. It begins at the batch
-- that holds from_offset. NULL: the partition does not exist.
CREATE OR REPLACE FUNCTION weir.seek_time(partition bigint, not_older bigint, from_offset bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
DECLARE
    p   weir.partition;
    r   weir.run;
    at  bigint;
    low bigint;
BEGIN
    SELECT * INTO p FROM weir.newest_partition(partition);
    low := greatest(from_offset, p.first_offset);
    FOR r IN SELECT * FROM weir.runs(p, low) x WHERE x.max_time >= not_older LOOP
        EXECUTE format('SELECT base_offset FROM weir.batch_%s
                        WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND max_time >= $4
                          AND base_offset + records > $5
                        ORDER BY base_offset LIMIT 1', r.segment)
        INTO at USING p.id, r.first_offset, r.next_offset, not_older, low;
        IF at IS NOT NULL THEN
            RETURN greatest(at, low);
        END IF; -- the batches of this run that are new enough are below the offset
    END LOOP;
    RETURN p.next_offset;
END $$;

-- For an older weir that runs at the same time: it always begins at the first offset.
CREATE OR REPLACE FUNCTION weir.seek_time(partition bigint, not_older bigint) RETURNS bigint
LANGUAGE sql STABLE
RETURN weir.seek_time(partition, not_older, 0);
