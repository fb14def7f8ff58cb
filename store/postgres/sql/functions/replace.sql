-- replace commits one entry that replaces batches: for each of partitions, which are sorted, the batches of [froms, tos). batch_nth
-- is the index of a new batch's partition in partitions, check_nth and put_nth that of a key in keys. body has the bytes of all batches and values.
--
-- It returns '' if it is done; 'stale' if a check failed or the batches are not there; 'no partition'; 'no segment' if the caller must open a segment of
-- survivors first. Then nothing has changed.
--
-- Rows of old batches stay in their segments, which are emptied and dropped once little of them is needed. No run refers to them.
CREATE OR REPLACE FUNCTION weir.replace(
    partitions    bigint[],
    froms         bigint[],
    tos           bigint[],
    batch_nth     int[],
    batch_records int[],
    batch_time    bigint[],
    batch_start   int[],
    batch_size    int[],
    keys          text[],
    check_nth     int[],
    check_version bigint[],
    put_nth       int[],
    put_version   bigint[],
    put_start     int[],
    put_size      int[],
    body          bytea
)
RETURNS text
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    p      weir.partition;
    verdict record;
    target int;
BEGIN
    LOCK TABLE weir.epoch IN ROW EXCLUSIVE MODE; -- before other locks, as in commit
    -- Segments are not sealed, emptied or dropped meanwhile. This guard is always taken before partitions.
    PERFORM FROM weir.guard g WHERE g.number = 65 FOR NO KEY UPDATE;
    SELECT s.number INTO target FROM weir.segment s WHERE s.sealed_at IS NULL AND s.survivors;
    IF target IS NULL THEN
        RETURN 'no segment';
    END IF;
    FOR i IN 1..cardinality(partitions) LOOP
        p := weir.lock_partition(partitions[i]);
        IF p.id IS NULL THEN
            RETURN 'no partition';
        ELSIF froms[i] < p.first_offset OR froms[i] >= p.next_offset OR tos[i] > p.next_offset
           OR weir.batch_byte(p, froms[i]) IS NULL OR weir.batch_byte(p, tos[i]) IS NULL THEN
            RETURN 'stale';
        END IF;
    END LOOP;
    SELECT c.stale, c.held INTO verdict
    FROM weir.commit('{}', keys, '{}', '{}', '{}', '{}', '{}', '{}',
                     array_fill(1, ARRAY[cardinality(check_nth)]), check_nth, check_version,
                     array_fill(1, ARRAY[cardinality(put_nth)]), put_nth, put_version, put_start, put_size,
                     array_fill(0, ARRAY[cardinality(put_nth)]), body, '{}') AS c;
    IF cardinality(verdict.stale) > 0 THEN
        RETURN 'stale';
    END IF;
    FOR i IN 1..cardinality(partitions) LOOP
        PERFORM weir.replace_span(partitions[i], froms[i], tos[i], target,
            array_agg(b.records ORDER BY b.n), array_agg(b.time ORDER BY b.n), array_agg(b.start ORDER BY b.n), array_agg(b.size ORDER BY b.n), body)
        FROM unnest(batch_nth, batch_records, batch_time, batch_start, batch_size) WITH ORDINALITY AS b(nth, records, time, start, size, n)
        WHERE b.nth = i;
    END LOOP;
    RETURN '';
END $$;
