-- commit_one commits one entry, as commit does, with the same locks in the same order. The entry has at most one batch, which fits into one
-- piece and creates no partition, and few keys, none of them the epoch's. commit works with arrays, and needs twice the time for an entry of one event.
--
-- keys are sorted and have no duplicates. body begins with the bytes of the batch.
CREATE OR REPLACE FUNCTION weir.commit_one(
    home        bigint,    -- the partition of the batch; NULL: there is no batch
    records     int,
    max_time    bigint,
    size        int,
    keys        text[],
    fresh       boolean[], -- whether the key probably does not exist
    expected    bigint[],  -- the version that the key must have; −1: any
    versions    bigint[],  -- the version that it gets
    starts      int[],     -- in body
    sizes       int[],     -- −1 deletes the key, −2 leaves it as it is
    with_base   boolean[], -- whether the base offset of the batch is appended to the value
    holdable    int,       -- the index of the key that may be held (hold.sql); 0: none
    body        bytea,
    server      bigint,    -- the incarnation of the store, as in still_after
    tables      bigint,
    epoch       bigint,
    OUT base    bigint,
    OUT refused int        -- 0: the entry was not refused, 1: a check failed, 2: a key is held, 3: the partition does not exist
)
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    part_row tid;     -- the newest row of the partition, locked; NULL: it does not exist
    segment  int;     -- that it wrote to before
    byte     bigint;  -- where its next batch begins
    key_row  tid;     -- the newest row of a key, locked; NULL: it does not exist
    found    bigint;  -- its version
    key_rows tid[];   -- of all keys
    missing  int[] := '{}'; -- the indexes of keys that do not exist
    free     boolean := true;
    late     record;
    bytes    bytea;
    n        int;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('session_replication_role') = 'replica'
       OR current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM weir.check_session();
    END IF;
    LOCK TABLE weir.epoch IN ROW EXCLUSIVE MODE;

    IF home IS NOT NULL THEN
        SELECT p.ctid, p.segment, p.next_offset, p.next_byte INTO part_row, segment, base, byte
        FROM weir.partition p WHERE p.id = home ORDER BY p.turn DESC LIMIT 1 FOR NO KEY UPDATE;
    END IF;

    -- Lock the keys, then the guards of those that do not exist; then look for these again. A key that is fresh is only looked for
    -- under its guard, so a deadlock is possible if it exists after all; then the commit is retried.
    refused := 0;
    FOR i IN 1..cardinality(keys) LOOP
        IF NOT fresh[i] THEN
            SELECT s.ctid, s.version INTO key_row, found
            FROM weir.state s WHERE s.key = keys[i] ORDER BY s.turn DESC LIMIT 1 FOR NO KEY UPDATE;
            key_rows[i] := key_row;
        END IF;
        IF fresh[i] OR key_row IS NULL THEN
            missing := missing || i;
        ELSIF expected[i] >= 0 AND expected[i] <> found THEN
            refused := 1;
        END IF;
    END LOOP;
    IF cardinality(missing) = 1 THEN
        PERFORM FROM weir.guard g WHERE g.number = hashtext(keys[missing[1]]) & 63 FOR NO KEY UPDATE;
    ELSIF cardinality(missing) > 1 THEN
        PERFORM FROM weir.guard g
        WHERE g.number = ANY (ARRAY(SELECT hashtext(keys[m.n]) & 63 FROM unnest(missing) AS m(n)))
        ORDER BY g.number FOR NO KEY UPDATE;
    END IF;
    FOREACH n IN ARRAY missing LOOP
        SELECT s.ctid, s.version INTO key_row, found
        FROM weir.state s WHERE s.key = keys[n] ORDER BY s.turn DESC LIMIT 1 FOR NO KEY UPDATE;
        key_rows[n] := key_row;
        IF expected[n] >= 0 AND expected[n] <> coalesce(found, 0) THEN
            refused := 1;
        END IF;
    END LOOP;
    IF refused = 0 AND holdable > 0 THEN
        SELECT pg_try_advisory_xact_lock_shared(weir.lock_number(keys[holdable], s.secret)) INTO free FROM weir.secret s WHERE s.one;
    END IF;

    -- What must be read after locking: see commit and still_after.
    SELECT s.number AS segment, l.server, l.tables, l.epoch,
           EXISTS (SELECT FROM weir.held o WHERE o.key = keys[holdable] AND o.version > expected[holdable]) AS held
    INTO late
    FROM weir.newest_life() AS l LEFT JOIN weir.segment s ON s.sealed_at IS NULL AND NOT s.survivors;
    IF server IS NOT NULL AND (server, tables, epoch) IS DISTINCT FROM (late.server, late.tables, late.epoch) THEN
        PERFORM weir.still_after(server, tables, epoch);
    END IF;
    IF refused = 0 AND (NOT free OR late.held) THEN
        refused := 2;
    ELSIF refused = 0 AND home IS NOT NULL AND part_row IS NULL THEN
        refused := 3;
    END IF;
    IF refused > 0 THEN
        RETURN;
    END IF;

    IF home IS NOT NULL THEN
        PERFORM weir.insert_piece(late.segment, home, base, byte, max_time, records, size, substring(body FOR size));
        IF segment <> late.segment THEN -- its batches there become a run
            INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
            SELECT p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment
            FROM weir.partition p
            WHERE p.ctid = part_row AND p.next_offset > greatest(p.run_offset, p.first_offset);
        END IF;
        UPDATE weir.partition p
        SET next_offset = base + records,
            next_byte   = byte + size,
            segment     = late.segment,
            run_offset  = CASE WHEN p.segment = late.segment THEN p.run_offset ELSE base END,
            run_byte    = CASE WHEN p.segment = late.segment THEN p.run_byte ELSE byte END,
            run_time    = CASE WHEN p.segment = late.segment THEN greatest(p.run_time, max_time) ELSE max_time END,
            writes      = p.writes + 1,
            turn        = (p.writes + 1) / 64
        WHERE p.ctid = part_row;
    END IF;

    FOR i IN 1..cardinality(keys) LOOP
        CONTINUE WHEN sizes[i] = -2;
        key_row := key_rows[i];
        IF sizes[i] = -1 THEN
            DELETE FROM weir.state s WHERE s.ctid = key_row;
            CONTINUE;
        END IF;
        bytes := substring(body FROM starts[i] + 1 FOR sizes[i]);
        IF with_base[i] THEN
            bytes := bytes || convert_to(coalesce(base, 0)::text, 'UTF8');
        END IF;
        IF key_row IS NULL THEN
            INSERT INTO weir.state (key, version, put_at, value) VALUES (keys[i], versions[i], clock_timestamp(), bytes);
        ELSE
            UPDATE weir.state s
            SET version = versions[i], value = bytes, put_at = clock_timestamp(), writes = s.writes + 1, turn = (s.writes + 1) / 64
            WHERE s.ctid = key_row;
        END IF;
    END LOOP;
END $$;
