-- read answers spans, numbered from 1. For each span it returns a row with the bounds of the partition, or no row if the
-- partition does not exist; then a row for each piece of the batches, in order. All spans together get at most budget
-- bytes; only the very first batch may be larger.
--
-- In each run two lookups find the first and the last batch of the answer; then one range of the key is read.
CREATE OR REPLACE FUNCTION weir.read(want_partition bigint[], want_from bigint[], want_bytes bigint[], budget bigint)
RETURNS TABLE (
    span int,
    first_offset bigint, next_offset bigint, held bigint, -- of the bounds
    base_offset bigint, max_time bigint, records int, size int, bytes bytea -- of a piece
)
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
DECLARE
    p     weir.partition;
    r     weir.run;
    left_ bigint := least(budget, 1 << 30); -- what is left of the budget
    any_  boolean := false;                 -- whether a batch was returned
    room  bigint;
    start bigint;
    byte  bigint;
    whole bigint;
    stop  bigint;
    reach bigint; -- the byte where the answer of this span ends
BEGIN
    FOR n IN 1..cardinality(want_partition) LOOP
        SELECT * INTO p FROM weir.newest_partition(want_partition[n]);
        CONTINUE WHEN NOT FOUND;
        span := n;
        first_offset := p.first_offset;
        next_offset := p.next_offset;
        held := p.next_byte - p.first_byte;
        RETURN NEXT;
        CONTINUE WHEN want_bytes[n] <= 0 OR want_from[n] < p.first_offset OR want_from[n] >= p.next_offset OR any_ AND left_ <= 0;

        start := NULL;
        FOR r IN SELECT * FROM weir.runs(p, want_from[n]) LOOP
            IF start IS NULL THEN
                EXECUTE format('SELECT base_offset, byte + $3, size FROM weir.batch_%s WHERE partition_id = $1 AND base_offset <= $2
                                ORDER BY base_offset DESC, piece DESC LIMIT 1', r.segment)
                INTO start, byte, whole USING p.id, want_from[n], r.shift;
                EXIT WHEN start IS NULL; -- the batch is missing; the caller notices that none came
                room := least(want_bytes[n], left_);
                EXIT WHEN any_ AND whole > room;
                any_ := true; -- the first batch of all is returned whatever its size
                room := byte + room; -- the highest byte that the answer may reach
                reach := byte + whole;
                stop := start + 1;
            ELSE
                start := r.first_offset;
                stop := start;
            END IF;
            IF r.next_byte <= room THEN
                stop := NULL; -- the rest of the run fits
                reach := r.next_byte;
            ELSE              -- up to the first batch that does not fit
                EXECUTE format('SELECT base_offset, byte + $5 FROM weir.batch_%s
                                WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3 AND piece = 0 AND byte + size > $4
                                ORDER BY base_offset LIMIT 1', r.segment)
                INTO stop, reach USING p.id, stop, r.next_offset, room - r.shift, r.shift;
                reach := coalesce(reach, r.next_byte);
            END IF;
            RETURN QUERY EXECUTE format(
                'SELECT $1, NULL::bigint, NULL::bigint, NULL::bigint, base_offset, max_time, records, size, bytes FROM weir.batch_%s
                 WHERE partition_id = $2 AND base_offset >= $3 AND base_offset < $4
                 ORDER BY base_offset, piece', r.segment)
            USING n, p.id, start, coalesce(stop, r.next_offset);
            EXIT WHEN stop IS NOT NULL;
        END LOOP;
        left_ := left_ - coalesce(reach - byte, 0);
        reach := NULL;
    END LOOP;
END $$;

-- For an older weir that runs at the same time: it reads without a budget.
CREATE OR REPLACE FUNCTION weir.read(want_partition bigint[], want_from bigint[], want_bytes bigint[])
RETURNS TABLE (
    span int,
    first_offset bigint, next_offset bigint, held bigint,
    base_offset bigint, max_time bigint, records int, size int, bytes bytea
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.* FROM weir.read(want_partition, want_from, want_bytes, 1073741824) AS r;
END;
