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

-- read answers spans, numbered from 1: first a row with the bounds of the span's partition, none where there is no such
-- partition; then a row for each piece of the batches asked for, in order.
--
-- In each run two lookups find where the answer begins and ends, and a range of the key is all that is read.
CREATE FUNCTION weir.read(want_partition bigint[], want_from bigint[], want_bytes bigint[])
RETURNS TABLE (
    span int,
    first_offset bigint, next_offset bigint, held bigint, -- of the bounds
    base_offset bigint, max_time bigint, records int, size int, bytes bytea -- of a piece
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    p     weir.partition;
    r     weir.run;
    room  bigint;
    start bigint;
    byte  bigint;
    stop  bigint;
BEGIN
    FOR n IN 1..cardinality(want_partition) LOOP
        SELECT * INTO p FROM weir.partition x WHERE x.id = want_partition[n] ORDER BY x.turn DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        span := n;
        first_offset := p.first_offset;
        next_offset := p.next_offset;
        held := p.next_byte - p.first_byte;
        RETURN NEXT;
        CONTINUE WHEN want_bytes[n] <= 0 OR want_from[n] < p.first_offset OR want_from[n] >= p.next_offset;

        start := NULL;
        FOR r IN SELECT * FROM weir.runs(p, want_from[n]) LOOP
            IF start IS NULL THEN -- the batch that holds the offset comes however large it is
                EXECUTE format('SELECT base_offset, byte FROM weir.batch_%s WHERE partition_id = $1 AND base_offset <= $2
                                ORDER BY base_offset DESC, piece DESC LIMIT 1', r.segment)
                INTO STRICT start, byte USING p.id, want_from[n];
                room := byte + least(want_bytes[n], 1 << 30); -- the highest byte that the answer may reach
                stop := start + 1;
            ELSE
                start := r.first_offset;
                stop := start;
            END IF;
            IF r.next_byte <= room THEN
                stop := NULL; -- the rest of the run has room
            ELSE              -- up to the first batch that has none
                EXECUTE format('SELECT base_offset FROM weir.batch_%s
                                WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND byte + size > $4
                                ORDER BY base_offset LIMIT 1', r.segment)
                INTO stop USING p.id, stop, r.next_offset, room;
            END IF;
            RETURN QUERY EXECUTE format(
                'SELECT $1, NULL::bigint, NULL::bigint, NULL::bigint, base_offset, max_time, records, size, bytes FROM weir.batch_%s
                 WHERE partition_id = $2 AND base_offset >= $3 AND base_offset < $4
                 ORDER BY base_offset, piece', r.segment)
            USING n, p.id, start, coalesce(stop, r.next_offset);
            EXIT WHEN stop IS NOT NULL;
        END LOOP;
    END LOOP;
END $$;

-- seek_time finds the first batch whose newest record is not older; NULL where there is no such partition.
CREATE FUNCTION weir.seek_time(partition bigint, not_older bigint) RETURNS bigint
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
    FOR r IN SELECT * FROM weir.runs(p, p.first_offset) x WHERE x.max_time >= not_older LOOP
        EXECUTE format('SELECT base_offset FROM weir.batch_%s
                        WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND max_time >= $4
                          AND base_offset + records > $5
                        ORDER BY base_offset LIMIT 1', r.segment)
        INTO at USING p.id, r.first_offset, r.next_offset, not_older, p.first_offset;
        IF at IS NOT NULL THEN
            RETURN greatest(at, p.first_offset);
        END IF; -- the young one of this run lies below first_offset
    END LOOP;
    RETURN p.next_offset;
END $$;

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
