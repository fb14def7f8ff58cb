-- commit makes a flush of entries durable, each wholly or not at all. The arrays are columns: batch_… has one element for each
-- batch, and so on; …_entry says whose it is, counting from 1. The bytes of all batches and values lie end to end in body.
--
-- Locks are taken in one order by everybody, partitions by id and then keys by key, and held until the commit is durable. So
-- offsets are dense, and become visible in order. The two lists of what to lock come sorted and without repetition.
CREATE FUNCTION weir.commit(
    partitions      bigint[],
    keys            text[],
    batch_entry     int[],
    batch_partition bigint[],
    batch_records   int[],    -- 0 opens the partition
    batch_time      bigint[],
    batch_start     int[],    -- in body
    batch_size      int[],
    check_entry     int[],
    check_key       text[],
    check_version   bigint[],
    put_entry       int[],
    put_key         text[],
    put_version     bigint[],
    put_start       int[],    -- in body
    put_size        int[],    -- −1 forgets the key
    put_base        int[],    -- which batch's base offset to append to the value; 0: none
    body            bytea,
    OUT bases       bigint[], -- of each batch; NULL where it only opens, or was refused
    OUT stale       int[],    -- entries refused because of a check
    OUT homeless    int[]     -- entries refused because a partition is not there
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    advisory constant int := 2003134834; -- 'weir': the class of all our advisory locks
    parts        weir.partition[];
    have_key     text[];
    have_turn    bigint[];
    have_version bigint[];
    target       int; -- the segment
    starts       bigint[];
    wrote        record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot taken before the locks would number batches from what was true before them.
        RAISE 'weir commits need read committed transactions, and this one is %', current_setting('transaction_isolation')
        USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- for this transaction
    END IF;

    -- Lock the partitions. Where one is not there, one commit at a time may open it: an advisory lock, and a second look behind it.
    FOR attempt IN 1..2 LOOP
        parts := ARRAY(
            SELECT newest.locked
            FROM unnest(partitions) AS wanted(id)
            CROSS JOIN LATERAL (
                SELECT p FROM weir.partition p WHERE p.id = wanted.id ORDER BY p.turn DESC LIMIT 1 FOR NO KEY UPDATE
            ) AS newest(locked));
        EXIT WHEN attempt = 2 OR cardinality(parts) = cardinality(partitions);
        PERFORM pg_advisory_xact_lock(advisory, 64);
    END LOOP;

    -- Lock the keys, in the same manner. Those that are not there share 64 advisory locks.
    IF cardinality(keys) > 0 THEN
        FOR attempt IN 1..2 LOOP
            SELECT array_agg(newest.key), array_agg(newest.turn), array_agg(newest.version)
            INTO have_key, have_turn, have_version
            FROM unnest(keys) AS wanted(key)
            CROSS JOIN LATERAL (
                SELECT s.key, s.turn, s.version FROM weir.state s
                WHERE s.key = wanted.key ORDER BY s.turn DESC LIMIT 1 FOR NO KEY UPDATE
            ) AS newest;
            EXIT WHEN attempt = 2 OR cardinality(have_key) = cardinality(keys);
            PERFORM pg_advisory_xact_lock(advisory, guard)
            FROM (
                SELECT DISTINCT hashtext(k) & 63 AS guard FROM unnest(keys) AS k
                WHERE NOT k = ANY (coalesce(have_key, '{}')) ORDER BY 1
            ) AS guards;
        END LOOP;
    END IF;

    -- Judge: first by the checks, then by the partitions.
    stale := '{}';
    homeless := '{}';
    IF cardinality(check_key) > 0 THEN
        stale := ARRAY(
            SELECT DISTINCT c.entry
            FROM unnest(check_entry, check_key, check_version) AS c(entry, key, version)
            LEFT JOIN unnest(have_key, have_version) AS h(key, version) ON h.key = c.key
            WHERE coalesce(h.version, 0) <> c.version);
    END IF;
    IF cardinality(parts) < cardinality(partitions) THEN
        homeless := ARRAY(
            SELECT DISTINCT b.entry
            FROM unnest(batch_entry, batch_partition, batch_records) WITH ORDINALITY AS b(entry, partition, records, place)
            WHERE b.records > 0
              AND NOT b.entry = ANY (stale)
              AND NOT EXISTS (SELECT FROM unnest(parts) AS p WHERE p.id = b.partition)
              AND NOT EXISTS ( -- nor opened by the entry itself, before
                SELECT FROM unnest(batch_entry, batch_partition, batch_records) WITH ORDINALITY AS o(entry, partition, records, place)
                WHERE o.entry = b.entry AND o.partition = b.partition AND o.records = 0 AND o.place < b.place));
        WITH opened AS (
            INSERT INTO weir.partition AS p (id)
            SELECT DISTINCT b.partition
            FROM unnest(batch_entry, batch_partition, batch_records) AS b(entry, partition, records)
            WHERE b.records = 0
              AND NOT b.entry = ANY (stale) AND NOT b.entry = ANY (homeless)
              AND NOT EXISTS (SELECT FROM unnest(parts) AS p WHERE p.id = b.partition)
            RETURNING p
        )
        SELECT parts || array_agg(p) INTO parts FROM opened;
    END IF;

    IF cardinality(batch_partition) > 0 THEN
        -- Give the batches their places: each begins where the one before it in its partition ends.
        SELECT array_agg(place.base_offset ORDER BY place.i), array_agg(place.byte ORDER BY place.i)
        INTO bases, starts
        FROM (
            SELECT b.i,
                   p.next_offset + sum(b.records) OVER before - b.records AS base_offset,
                   p.next_byte + sum(b.size) OVER before - b.size AS byte
            FROM (
                SELECT i, partition,
                       CASE WHEN refused THEN NULL ELSE records END AS records,
                       CASE WHEN refused THEN NULL ELSE size END AS size
                FROM (
                    SELECT x.*, x.records = 0 OR x.entry = ANY (stale) OR x.entry = ANY (homeless) AS refused
                    FROM unnest(batch_entry, batch_partition, batch_records, batch_size)
                         WITH ORDINALITY AS x(entry, partition, records, size, i)
                ) AS y
            ) AS b
            LEFT JOIN unnest(parts) AS p ON p.id = b.partition
            WINDOW before AS (PARTITION BY b.partition ORDER BY b.i)
        ) AS place;

        -- Write the batches. The number of the segment is read behind the locks: who comes later sees what an earlier one saw.
        SELECT s.number INTO target FROM weir.segment s WHERE s.sealed_at IS NULL AND NOT s.survivors;
        EXECUTE format(
            'INSERT INTO weir.batch_%s
             SELECT b.partition, b.base, b.byte, b.time, b.records, b.size, piece,
                    substring($8 FROM b.start + piece * 8088 + 1 FOR least(8088, b.size - piece * 8088))
             FROM unnest($1, $2, $3, $4, $5, $6, $7) AS b(partition, base, byte, time, records, size, start),
                  generate_series(0, (b.size - 1) / 8088) AS piece
             WHERE b.base IS NOT NULL', target)
        USING batch_partition, bases, starts, batch_time, batch_records, batch_size, batch_start, body;

        -- Where the segment is not the one that a partition wrote to before, what it wrote there becomes a run.
        INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
        SELECT p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment
        FROM unnest(parts) AS p
        WHERE p.segment <> target
          AND p.next_offset > greatest(p.run_offset, p.first_offset)
          AND EXISTS (SELECT FROM unnest(batch_partition, bases) AS b(partition, base) WHERE b.partition = p.id AND b.base IS NOT NULL);

        -- Row by row, here and for the keys below. Joined to all of them at once, the planner, who knows of five rows, would walk the
        -- whole table: through every old version that some open transaction keeps.
        FOR wrote IN
            SELECT held.id, held.turn, sum(b.records) AS records, sum(b.size) AS size, max(b.time) AS time
            FROM unnest(batch_partition, bases, batch_records, batch_size, batch_time) AS b(partition, base, records, size, time)
            JOIN unnest(parts) AS held ON held.id = b.partition
            WHERE b.base IS NOT NULL
            GROUP BY held.id, held.turn
        LOOP
            UPDATE weir.partition p
            SET next_offset = p.next_offset + wrote.records,
                next_byte   = p.next_byte + wrote.size,
                segment     = target,
                run_offset  = CASE WHEN p.segment = target THEN p.run_offset ELSE p.next_offset END,
                run_byte    = CASE WHEN p.segment = target THEN p.run_byte ELSE p.next_byte END,
                run_time    = CASE WHEN p.segment = target THEN greatest(p.run_time, wrote.time) ELSE wrote.time END,
                writes      = p.writes + 1,
                turn        = (p.writes + 1) / 64
            WHERE p.id = wrote.id AND p.turn = wrote.turn;
        END LOOP;
    END IF;

    -- Write the keys.
    IF cardinality(put_key) > 0 THEN
        FOR wrote IN
            SELECT w.key, w.version, w.start, w.size, w.nth, h.turn
            FROM unnest(put_entry, put_key, put_version, put_start, put_size, put_base) AS w(entry, key, version, start, size, nth)
            JOIN unnest(have_key, have_turn) AS h(key, turn) ON h.key = w.key
            WHERE NOT w.entry = ANY (stale) AND NOT w.entry = ANY (homeless)
        LOOP
            IF wrote.size < 0 THEN
                DELETE FROM weir.state s WHERE s.key = wrote.key AND s.turn = wrote.turn;
            ELSE
                UPDATE weir.state s
                SET version = wrote.version,
                    value   = substring(body FROM wrote.start + 1 FOR wrote.size)
                              || CASE WHEN wrote.nth > 0 THEN convert_to(coalesce(bases[wrote.nth], 0)::text, 'UTF8') ELSE '' END,
                    put_at  = clock_timestamp(),
                    writes  = s.writes + 1,
                    turn    = (s.writes + 1) / 64
                WHERE s.key = wrote.key AND s.turn = wrote.turn;
            END IF;
        END LOOP;

        IF cardinality(have_key) IS DISTINCT FROM cardinality(keys) THEN
            INSERT INTO weir.state (key, version, put_at, value)
            SELECT w.key, w.version, clock_timestamp(),
                   substring(body FROM w.start + 1 FOR w.size)
                   || CASE WHEN w.nth > 0 THEN convert_to(coalesce(bases[w.nth], 0)::text, 'UTF8') ELSE '' END
            FROM unnest(put_entry, put_key, put_version, put_start, put_size, put_base) AS w(entry, key, version, start, size, nth)
            WHERE w.size >= 0
              AND NOT w.key = ANY (coalesce(have_key, '{}'))
              AND NOT w.entry = ANY (stale) AND NOT w.entry = ANY (homeless);
        END IF;
    END IF;
END $$;
