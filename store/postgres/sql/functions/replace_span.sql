-- replace_span writes the new batches of [low, high) into the segment target, and makes the runs say so. The caller has locked the partition and
-- checked the span.
--
--   before   ├──────── run A ────────┤├─ run B ─┤
--   span               ├────────────────┤
--   after       ├── A ─┤├─── new ────┤├─ B ─────┤    A begins later by the bytes that were removed, B is as it was
CREATE OR REPLACE FUNCTION weir.replace_span(
    partition bigint, low bigint, high bigint, target int,
    records int[], times bigint[], starts int[], sizes int[], body bytea
)
RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    p         weir.partition;
    r         weir.run;
    low_byte  bigint;
    high_byte bigint;
    removed   bigint;
    newest    bigint := -1;
    base      bigint := low;
    at        bigint;
    bases     bigint[];
    bytes     bigint[];
BEGIN
    p := weir.lock_partition(partition);
    low_byte := weir.batch_byte(p, low);
    high_byte := weir.batch_byte(p, high);
    removed := high_byte - low_byte - (SELECT sum(s) FROM unnest(sizes) AS s);

    -- End the run that is being written, if it is concerned.
    IF high > p.run_offset AND p.next_offset > p.run_offset THEN
        INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
        VALUES (p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment);
        p.segment := 0;
        p.run_offset := p.next_offset;
        p.run_byte := p.next_byte;
        p.run_time := -1;
    END IF;

    FOR r IN SELECT * FROM weir.run x WHERE x.partition_id = p.id AND x.next_offset > low ORDER BY x.next_offset LOOP
        EXIT WHEN r.first_offset >= high;
        IF r.first_offset < low AND r.next_offset > high THEN
            INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment, shift)
            VALUES (p.id, r.first_offset, low, r.first_byte, low_byte, r.max_time, r.segment, r.shift);
        END IF;
        IF r.next_offset > high THEN
            UPDATE weir.run x SET first_offset = high, first_byte = high_byte WHERE x.partition_id = p.id AND x.next_offset = r.next_offset;
        ELSIF r.first_offset < low THEN
            UPDATE weir.run x SET next_offset = low, next_byte = low_byte WHERE x.partition_id = p.id AND x.next_offset = r.next_offset;
        ELSE
            DELETE FROM weir.run x WHERE x.partition_id = p.id AND x.next_offset = r.next_offset;
        END IF;
    END LOOP;
    IF removed <> 0 THEN
        UPDATE weir.run x SET first_byte = x.first_byte + removed, next_byte = x.next_byte + removed, shift = x.shift + removed
        WHERE x.partition_id = p.id AND x.next_offset <= low;
    END IF;

    -- Write the batches. The segment may have rows of the span already, from an earlier replacement.
    EXECUTE format('DELETE FROM weir.batch_%s WHERE partition_id = $1 AND base_offset >= $2 AND base_offset < $3', target) USING p.id, low, high;
    SELECT * INTO r FROM weir.run x WHERE x.partition_id = p.id AND x.next_offset = low AND x.segment + 0 = target; -- by the primary key
    at := low_byte + removed - coalesce(r.shift, 0);
    FOR i IN 1..cardinality(sizes) LOOP
        bases[i] := base;
        bytes[i] := at;
        base := base + records[i];
        at := at + sizes[i];
        newest := greatest(newest, times[i]);
    END LOOP;
    EXECUTE format('SELECT weir.write_%s($1, $2, $3, $4, $5, $6, $7, $8)', target)
    USING array_fill(p.id, ARRAY[cardinality(sizes)]), bases, bytes, times, records, sizes, starts, body;
    IF r.segment IS NULL THEN
        INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
        VALUES (p.id, low, high, low_byte + removed, high_byte, newest, target);
    ELSE
        UPDATE weir.run x SET next_offset = high, next_byte = high_byte, max_time = greatest(x.max_time, newest)
        WHERE x.partition_id = p.id AND x.next_offset = low;
    END IF;
    UPDATE weir.partition x
    SET first_byte = x.first_byte + removed,
        segment = p.segment, run_offset = p.run_offset, run_byte = p.run_byte, run_time = p.run_time,
        writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.id = p.id AND x.turn = p.turn;
END $$;
