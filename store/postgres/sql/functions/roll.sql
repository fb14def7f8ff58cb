-- roll seals the segment that takes commits (or survivors) if it is full or has been open for too long, and opens the next
-- one. Commits are not blocked: a commit that read the old number still writes to the old segment, which is harmless.
CREATE OR REPLACE FUNCTION weir.roll(for_survivors boolean, full_at bigint, older_than interval) RETURNS boolean
LANGUAGE plpgsql
:pinned
SET lock_timeout = '100ms'
AS $$
DECLARE
    now_open weir.segment;
    batches  regclass;
    size     bigint;
BEGIN
    PERFORM FROM weir.guard g WHERE g.number = 65 FOR NO KEY UPDATE SKIP LOCKED; -- one process sweeps at a time
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO now_open FROM weir.segment s WHERE s.sealed_at IS NULL AND s.survivors = for_survivors;
    IF FOUND THEN
        batches := format('weir.batch_%s', now_open.number)::regclass;
        size := pg_total_relation_size(batches);
        IF size < full_at AND (pg_relation_size(batches) = 0 OR clock_timestamp() - now_open.opened_at < older_than) THEN
            RETURN false;
        END IF;
        -- A sample of 16 MiB shows which share of the table is bytes of batches.
        EXECUTE format('UPDATE weir.segment
                        SET sealed_at = clock_timestamp(),
                            payload = greatest(1, $1 / 16777216.0) * (SELECT coalesce(sum(octet_length(bytes)), 0)
                                                                      FROM %s TABLESAMPLE SYSTEM (least(100, 100 * 16777216.0 / $1)))
                        WHERE number = $2', batches)
        USING size, now_open.number;
    END IF;
    PERFORM weir.add_segment(for_survivors);
    RETURN true;
END $$;
