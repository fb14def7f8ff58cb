-- commit commits a flush of entries, each as a whole or not at all. The arrays are columns: batch_… has one element for
-- each batch, check_… for each check, put_… for each put. …_entry is the number of the entry, ascending; …_nth is the index
-- of the partition in partitions, or of the key in keys. Both count from 1. Nothing is joined here: a join of two arrays may
-- be planned as a nested loop. body has the bytes of all batches and values.
--
-- Every commit takes its locks in one order, partitions by id and then keys by key, and holds them until it is durable.
-- So offsets have no gaps, and become visible in order. partitions and keys are sorted and have no duplicates.
CREATE OR REPLACE FUNCTION weir.commit(
    partitions      bigint[],
    keys            text[],
    batch_entry     int[],
    batch_nth       int[],
    batch_records   int[],    -- 0 creates the partition
    batch_time      bigint[],
    batch_start     int[],    -- in body
    batch_size      int[],
    check_entry     int[],
    check_nth       int[],
    check_version   bigint[],
    put_entry       int[],
    put_nth         int[],
    put_version     bigint[],
    put_start       int[],    -- in body
    put_size        int[],    -- −1 deletes the key
    put_base        int[],    -- the number of the batch whose base offset is appended to the value; 0: none
    body            bytea,
    holdable        int[],    -- the checks whose keys may be held (hold.sql), as indexes of check_…
    OUT bases       bigint[], -- of each batch; NULL if it only creates its partition, or was refused
    OUT stale       int[],    -- entries refused because of a check
    OUT homeless    int[],    -- entries refused because a partition does not exist
    OUT held        int[]     -- entries refused because a key is held
)
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- One element for each of partitions. The newest row is locked, and later updated by its ctid, so that no
    -- old version is read. NULL: the partition does not exist.
    part_row     tid[];
    part_segment int[];    -- the segment that it wrote to before
    part_offset  bigint[]; -- the base offset of its next batch
    part_byte    bigint[];
    part_time    bigint[]; -- the newest time of its new batches; NULL: it has none
    -- The same for each of keys.
    key_row      tid[];
    key_version  bigint[];
    refused      boolean[]; -- for each entry; NULL: not refused
    opener       int[];    -- for each of partitions that does not exist: the last entry that creates it
    opens        int[];    -- the indexes of the partitions to create
    target       int;      -- the segment
    written      bigint[]; -- the partition of each batch
    starts       bigint[]; -- of each batch: its first byte in the partition
    n            int;
    k            int := 0;
    opened       record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('session_replication_role') = 'replica'
       OR current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM weir.check_session();
    END IF;

    -- Who begins an epoch waits until every commit in progress has ended, and lets the others continue when the epoch is committed: see still_after.
    -- This lock comes before those of partitions and keys, so that no commit that has such locks waits for the epoch.
    IF 'incarnation' = ANY (keys) AND array_position(keys, 'incarnation') = ANY (put_nth) THEN
        PERFORM weir.wait_for_commits();
    ELSE
        LOCK TABLE weir.epoch IN ROW EXCLUSIVE MODE;
    END IF;

    -- Lock the partitions. A commit that may create a partition locks the guard first, so that no other commit
    -- creates one that the next query does not see.
    IF 0 = ANY (batch_records) THEN
        PERFORM FROM weir.guard g WHERE g.number = 64 FOR NO KEY UPDATE;
    END IF;
    IF cardinality(partitions) > 0 THEN
        SELECT array_agg(newest.place), array_agg(newest.segment), array_agg(newest.next_offset), array_agg(newest.next_byte), array_agg(NULL::bigint)
        INTO part_row, part_segment, part_offset, part_byte, part_time
        FROM unnest(partitions) AS wanted(id)
        LEFT JOIN LATERAL (
            SELECT p.ctid, p.segment, p.next_offset, p.next_byte FROM weir.partition p
            WHERE p.id = wanted.id ORDER BY p.turn DESC LIMIT 1 FOR NO KEY UPDATE
        ) AS newest(place, segment, next_offset, next_byte) ON true;
    END IF;

    -- Lock the keys. Only one commit at a time may create a key: it locks the guards of keys that do not exist,
    -- in order, and reads a second time. A deadlock is possible only if a key appears between the two reads;
    -- then the commit is retried.
    IF cardinality(keys) > 0 THEN
        FOR attempt IN 1..2 LOOP
            SELECT array_agg(newest.place), array_agg(newest.version)
            INTO key_row, key_version
            FROM unnest(keys) AS wanted(key)
            LEFT JOIN LATERAL (
                SELECT s.ctid, s.version FROM weir.state s
                WHERE s.key = wanted.key ORDER BY s.turn DESC LIMIT 1 FOR NO KEY UPDATE
            ) AS newest(place, version) ON true;
            EXIT WHEN attempt = 2 OR array_position(key_row, NULL) IS NULL;
            PERFORM FROM weir.guard g
            WHERE g.number = ANY (ARRAY(
                SELECT hashtext(k.key) & 63 FROM unnest(keys, key_row) AS k(key, place) WHERE k.place IS NULL))
            ORDER BY g.number FOR NO KEY UPDATE;
        END LOOP;
    END IF;

    -- Refuse entries whose checks fail, then those that check a held key, then those whose partitions do not exist.
    stale := '{}';
    homeless := '{}';
    held := '{}';
    IF cardinality(check_nth) > 0 THEN
        stale := ARRAY(
            SELECT DISTINCT c.entry
            FROM unnest(check_entry, check_nth, check_version) AS c(entry, nth, version)
            WHERE coalesce(key_version[c.nth], 0) <> c.version
            ORDER BY 1);
        FOREACH n IN ARRAY stale LOOP
            refused[n] := true;
        END LOOP;
    END IF;
    -- The shared locks are kept until this commit ends: hold waits for it. A transaction that held a key has become visible before its lock was
    -- released, so the second statement sees its row in weir.held. Nothing here waits.
    IF cardinality(holdable) > 0 THEN
        held := ARRAY(
            SELECT DISTINCT check_entry[h.n]
            FROM unnest(holdable) AS h(n)
            WHERE NOT pg_try_advisory_xact_lock_shared(weir.lock_number(keys[check_nth[h.n]], (SELECT s.secret FROM weir.secret s WHERE s.one)))
            ORDER BY 1);
        held := ARRAY(
            SELECT DISTINCT check_entry[h.n]
            FROM unnest(holdable) AS h(n)
            WHERE check_entry[h.n] = ANY (held)
               OR EXISTS (SELECT FROM weir.held o WHERE o.key = keys[check_nth[h.n]] AND o.version > check_version[h.n])
            ORDER BY 1);
        held := ARRAY(SELECT h.n FROM unnest(held) AS h(n) WHERE refused[h.n] IS NULL);
        FOREACH n IN ARRAY held LOOP
            refused[n] := true;
        END LOOP;
    END IF;
    IF array_position(part_row, NULL) IS NOT NULL THEN
        FOR i IN 1..cardinality(batch_nth) LOOP
            n := batch_nth[i];
            IF part_row[n] IS NOT NULL OR refused[batch_entry[i]] THEN
                CONTINUE;
            ELSIF batch_records[i] = 0 THEN
                opener[n] := batch_entry[i];
            ELSIF opener[n] IS DISTINCT FROM batch_entry[i] THEN -- and the entry itself does not create it first
                homeless := homeless || batch_entry[i];
                refused[batch_entry[i]] := true;
            END IF;
        END LOOP;
        opens := ARRAY(
            SELECT DISTINCT b.nth
            FROM unnest(batch_entry, batch_nth, batch_records) AS b(entry, nth, records)
            WHERE b.records = 0 AND part_row[b.nth] IS NULL AND refused[b.entry] IS NULL
            ORDER BY 1);
        FOR opened IN
            INSERT INTO weir.partition AS p (id)
            SELECT partitions[o.nth] FROM unnest(opens) AS o(nth)
            RETURNING p.id, p.ctid AS place, p.segment, p.next_offset, p.next_byte
        LOOP
            k := k + 1;
            n := opens[k];
            ASSERT opened.id = partitions[n], 'RETURNING must return the rows in the order in which they were inserted';
            part_row[n] := opened.place;
            part_segment[n] := opened.segment;
            part_offset[n] := opened.next_offset;
            part_byte[n] := opened.next_byte;
        END LOOP;
    END IF;

    IF cardinality(batch_nth) > 0 THEN
        -- Assign offsets: each batch begins where the previous batch of its partition ends.
        bases := array_fill(NULL::bigint, ARRAY[cardinality(batch_nth)]);
        starts := bases;
        written := bases;
        FOR i IN 1..cardinality(batch_nth) LOOP
            CONTINUE WHEN batch_records[i] = 0 OR refused[batch_entry[i]];
            n := batch_nth[i];
            written[i] := partitions[n];
            bases[i] := part_offset[n];
            starts[i] := part_byte[n];
            part_offset[n] := part_offset[n] + batch_records[i];
            part_byte[n] := part_byte[n] + batch_size[i];
            part_time[n] := greatest(part_time[n], batch_time[i]);
        END LOOP;

        -- Write the batches. The number of the segment is read after locking, so that a later commit
        -- of a partition never uses an older segment than an earlier one.
        SELECT s.number INTO target FROM weir.segment s WHERE s.sealed_at IS NULL AND NOT s.survivors;
        EXECUTE format('SELECT weir.write_%s($1, $2, $3, $4, $5, $6, $7, $8)', target)
        USING written, bases, starts, batch_time, batch_records, batch_size, batch_start, body;

        -- If a partition wrote to another segment before, its batches there become a run.
        IF target <> ANY (part_segment) THEN
            INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
            SELECT p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment
            FROM unnest(part_row, part_time) AS w(place, time)
            JOIN weir.partition p ON p.ctid = w.place
            WHERE w.time IS NOT NULL AND p.segment <> target AND p.next_offset > greatest(p.run_offset, p.first_offset);
        END IF;

        UPDATE weir.partition p
        SET next_offset = w.next_offset,
            next_byte   = w.next_byte,
            segment     = target,
            run_offset  = CASE WHEN p.segment = target THEN p.run_offset ELSE p.next_offset END,
            run_byte    = CASE WHEN p.segment = target THEN p.run_byte ELSE p.next_byte END,
            run_time    = CASE WHEN p.segment = target THEN greatest(p.run_time, w.time) ELSE w.time END,
            writes      = p.writes + 1,
            turn        = (p.writes + 1) / 64
        FROM unnest(part_row, part_offset, part_byte, part_time) AS w(place, next_offset, next_byte, time)
        WHERE p.ctid = w.place AND w.time IS NOT NULL;
    END IF;

    -- Write the keys.
    IF cardinality(put_nth) > 0 THEN
        IF cardinality(array_remove(key_row, NULL)) > 0 THEN
            UPDATE weir.state s
            SET version = w.version,
                value   = substring(body FROM w.start + 1 FOR w.size)
                          || CASE WHEN w.base > 0 THEN convert_to(coalesce(bases[w.base], 0)::text, 'UTF8') ELSE '' END,
                put_at  = clock_timestamp(),
                writes  = s.writes + 1,
                turn    = (s.writes + 1) / 64
            FROM unnest(put_entry, put_nth, put_version, put_start, put_size, put_base) AS w(entry, nth, version, start, size, base)
            WHERE s.ctid = key_row[w.nth] AND w.size >= 0 AND refused[w.entry] IS NULL;
        END IF;

        IF -1 = ANY (put_size) THEN
            DELETE FROM weir.state s
            USING unnest(put_entry, put_nth, put_size) AS w(entry, nth, size)
            WHERE s.ctid = key_row[w.nth] AND w.size < 0 AND refused[w.entry] IS NULL;
        END IF;

        IF array_position(key_row, NULL) IS NOT NULL THEN
            INSERT INTO weir.state (key, version, put_at, value)
            SELECT keys[w.nth], w.version, clock_timestamp(),
                   substring(body FROM w.start + 1 FOR w.size)
                   || CASE WHEN w.base > 0 THEN convert_to(coalesce(bases[w.base], 0)::text, 'UTF8') ELSE '' END
            FROM unnest(put_entry, put_nth, put_version, put_start, put_size, put_base) AS w(entry, nth, version, start, size, base)
            WHERE key_row[w.nth] IS NULL AND w.size >= 0 AND refused[w.entry] IS NULL;
        END IF;
    END IF;
END $$;
