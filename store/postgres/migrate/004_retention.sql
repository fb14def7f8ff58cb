-- trim moves a partition's first offset up to before, at most to its end. It changes the partition's row and forgets runs;
-- batches go with their segments (sweep.go). It tells whether anything moved.
CREATE FUNCTION weir.trim(partition bigint, before bigint) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    p      weir.partition;
    target bigint;
    byte   bigint;
    home   int;
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = partition ORDER BY x.turn DESC LIMIT 1 FOR NO KEY UPDATE;
    target := least(before, p.next_offset);
    IF p.id IS NULL OR target <= p.first_offset THEN
        RETURN false;
    END IF;
    byte := p.next_byte;
    IF target < p.next_offset THEN
        SELECT x.segment INTO STRICT home FROM weir.runs(p, target) x LIMIT 1;
        EXECUTE format('SELECT byte FROM weir.batch_%s WHERE partition_id = $1 AND base_offset <= $2
                        ORDER BY base_offset DESC, piece DESC LIMIT 1', home)
        INTO STRICT byte USING p.id, target;
    END IF;
    UPDATE weir.partition x
    SET first_offset = target, first_byte = byte, writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.id = p.id AND x.turn = p.turn;
    DELETE FROM weir.run r WHERE r.partition_id = p.id AND r.next_offset <= target;
    RETURN true;
END $$;

-- forget removes a partition.
CREATE FUNCTION weir.forget(partition bigint) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    p weir.partition;
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = partition ORDER BY x.turn DESC LIMIT 1 FOR NO KEY UPDATE;
    DELETE FROM weir.run r WHERE r.partition_id = p.id;
    DELETE FROM weir.partition x WHERE x.id = p.id AND x.turn = p.turn;
    RETURN FOUND;
END $$;

-- roll seals the segment that takes commits (or survivors) and opens the next, if it is full or has stood open for too long.
-- Commits go on meanwhile: one that saw the old number still writes there, and that does no harm.
CREATE FUNCTION weir.roll(for_survivors boolean, full_at bigint, older_than interval) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET lock_timeout = '100ms'
AS $$
DECLARE
    now_open weir.segment;
    batches  regclass;
    size     bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(2003134834, 65) THEN -- one process sweeps at a time
        RETURN false;
    END IF;
    SELECT * INTO now_open FROM weir.segment s WHERE s.sealed_at IS NULL AND s.survivors = for_survivors;
    IF FOUND THEN
        batches := format('weir.batch_%s', now_open.number)::regclass;
        size := pg_total_relation_size(batches);
        IF size < full_at AND (pg_relation_size(batches) = 0 OR clock_timestamp() - now_open.opened_at < older_than) THEN
            RETURN false;
        END IF;
        -- How much of the table is batches, and not the rows around them and the index: a sample of 16 MiB tells.
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

-- fill tells of every sealed segment how many bytes of batches are in it, and how many of them are still wanted.
CREATE VIEW weir.fill AS
WITH newest AS MATERIALIZED (
    SELECT * FROM weir.newest
), wanted AS (
    SELECT r.segment, r.next_byte - greatest(r.first_byte, n.first_byte) AS bytes
    FROM weir.run r JOIN newest n ON n.id = r.partition_id
    UNION ALL
    SELECT n.segment, n.next_byte - greatest(n.run_byte, n.first_byte)
    FROM newest n WHERE n.first_offset < n.next_offset
)
SELECT s.number, s.payload,
       coalesce(sum(w.bytes), 0)::bigint AS wanted,
       count(w.bytes) AS runs
FROM weir.segment s
LEFT JOIN wanted w ON w.segment = s.number
WHERE s.sealed_at IS NOT NULL
GROUP BY s.number;

-- settle ends the runs that idle partitions have in a sealed segment, so that they can be moved.
CREATE FUNCTION weir.settle(victim int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    p weir.partition;
    wanted bigint;
BEGIN
    FOR wanted IN SELECT x.id FROM weir.partition x WHERE x.segment = victim ORDER BY x.id LOOP
        SELECT * INTO p FROM weir.partition x WHERE x.id = wanted ORDER BY x.turn DESC LIMIT 1 FOR NO KEY UPDATE;
        CONTINUE WHEN p.segment IS DISTINCT FROM victim;
        IF p.next_offset > greatest(p.run_offset, p.first_offset) THEN
            INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
            VALUES (p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment);
        END IF;
        UPDATE weir.partition x
        SET segment = 0, run_offset = x.next_offset, run_byte = x.next_byte, run_time = -1,
            writes = x.writes + 1, turn = (x.writes + 1) / 64
        WHERE x.id = p.id AND x.turn = p.turn;
    END LOOP;
END $$;

-- move_run copies what is still wanted of one run out of a segment, into the one that takes survivors. It tells false when no run is
-- left, or another process is at it. Commits to the partition go on meanwhile: its row is not touched.
CREATE FUNCTION weir.move_run(victim int) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    r      weir.run;
    low    bigint;
    target int;
BEGIN
    IF NOT pg_try_advisory_xact_lock(2003134834, 65) THEN -- one process sweeps at a time
        RETURN false;
    END IF;
    SELECT s.number INTO target FROM weir.segment s WHERE s.sealed_at IS NULL AND s.survivors;
    SELECT * INTO r FROM weir.run x WHERE x.segment = victim ORDER BY x.partition_id, x.next_offset LIMIT 1;
    IF target IS NULL OR r.segment IS NULL THEN
        RETURN false;
    END IF;
    SELECT x.first_offset INTO low FROM weir.partition x WHERE x.id = r.partition_id ORDER BY x.turn DESC LIMIT 1;
    EXECUTE format('INSERT INTO weir.batch_%s
                    SELECT * FROM weir.batch_%s
                    WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND base_offset + records > $4
                    ORDER BY base_offset, piece', target, victim)
    USING r.partition_id, r.first_offset, r.next_offset, low;
    -- The run may have been trimmed away meanwhile; then the copy is nobody's, and goes with its segment.
    UPDATE weir.run x SET segment = target
    WHERE x.partition_id = r.partition_id AND x.next_offset = r.next_offset AND x.segment = victim;
    RETURN true;
END $$;
