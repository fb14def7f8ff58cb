-- seek_bytes returns the highest batch boundary with at least this many bytes after it; NULL if the partition does not
-- exist; -1: no batch has that boundary, so the partition is damaged.
CREATE OR REPLACE FUNCTION weir.seek_bytes(partition bigint, behind bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
DECLARE
    p  weir.partition;
    r  weir.run;
    at bigint;
BEGIN
    SELECT * INTO p FROM weir.newest_partition(partition);
    IF NOT FOUND OR p.first_offset = p.next_offset OR p.next_byte - p.first_byte < behind THEN
        RETURN p.first_offset;
    END IF;
    SELECT * INTO r FROM weir.runs(p, p.first_offset) x WHERE x.first_byte <= p.next_byte - behind ORDER BY x.next_offset DESC LIMIT 1;
    IF r.segment IS NULL THEN
        RETURN -1;
    END IF;
    EXECUTE format('SELECT base_offset FROM weir.batch_%s
                    WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND byte <= $4
                    ORDER BY base_offset DESC LIMIT 1', r.segment)
    INTO at USING p.id, r.first_offset, r.next_offset, p.next_byte - behind - r.shift;
    RETURN CASE WHEN at IS NULL THEN -1 ELSE greatest(at, p.first_offset) END;
END $$;
