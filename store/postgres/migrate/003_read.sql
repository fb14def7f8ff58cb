-- newest is the newest version of every partition's row, found by walking the key from one partition to the next. SELECT … FROM
-- weir.partition finds the same, and is faster where old versions do not swell the table.
CREATE VIEW weir.newest AS
WITH RECURSIVE walk AS (
    (SELECT x.* FROM weir.partition x ORDER BY x.id, x.turn DESC LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM walk
    CROSS JOIN LATERAL (
        SELECT x.* FROM weir.partition x WHERE x.id > walk.id ORDER BY x.id, x.turn DESC LIMIT 1
    ) AS following
)
SELECT * FROM walk;

-- bounds tells what every partition holds.
--
-- Where the table is small it is read from end to end. Where old versions swell it (a transaction was left open somewhere),
-- that would cost more with every flush.
CREATE FUNCTION weir.bounds() RETURNS TABLE (id bigint, first_offset bigint, next_offset bigint, bytes bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    IF pg_relation_size('weir.partition') < 1048576 THEN
        RETURN QUERY SELECT x.id, x.first_offset, x.next_offset, x.next_byte - x.first_byte FROM weir.partition x;
    ELSE
        RETURN QUERY SELECT x.id, x.first_offset, x.next_offset, x.next_byte - x.first_byte FROM weir.newest x;
    END IF;
END $$;

-- runs lists the runs of a partition that end above an offset, in order, the one being written last.
CREATE FUNCTION weir.runs(p weir.partition, above bigint) RETURNS SETOF weir.run
LANGUAGE sql STABLE
AS $$
    SELECT r.* FROM weir.run r WHERE r.partition_id = p.id AND r.next_offset > above
    UNION ALL
    SELECT p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment
    WHERE p.next_offset > greatest(p.run_offset, above)
    ORDER BY next_offset
$$;

-- seek_bytes finds the highest batch boundary with at least so many bytes behind it; NULL where there is no such partition.
CREATE FUNCTION weir.seek_bytes(partition bigint, behind bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    p  weir.partition;
    r  weir.run;
    at bigint;
BEGIN
    SELECT * INTO p FROM weir.partition x WHERE x.id = partition ORDER BY x.turn DESC LIMIT 1;
    IF NOT FOUND OR p.first_offset = p.next_offset OR p.next_byte - p.first_byte < behind THEN
        RETURN p.first_offset;
    END IF;
    SELECT * INTO r FROM weir.runs(p, p.first_offset) x WHERE x.first_byte <= p.next_byte - behind ORDER BY x.next_offset DESC LIMIT 1;
    EXECUTE format('SELECT base_offset FROM weir.batch_%s
                    WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND byte <= $4
                    ORDER BY base_offset DESC LIMIT 1', r.segment)
    INTO STRICT at USING p.id, r.first_offset, r.next_offset, p.next_byte - behind;
    RETURN greatest(at, p.first_offset);
END $$;

-- list returns keyed state between low and high, after a key, in byte order.
CREATE FUNCTION weir.list(low text, high text, after text, most int)
RETURNS TABLE (key text, version bigint, value bytea, age_us bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
BEGIN
    RETURN QUERY
    SELECT s.key, s.version, s.value, (extract(epoch FROM clock_timestamp() - s.put_at) * 1000000)::bigint
    FROM weir.state s
    WHERE s.key >= low AND s.key > after AND s.key < high
    ORDER BY s.key
    LIMIT most;
END $$;
