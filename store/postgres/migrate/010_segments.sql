-- Segments come and go.

-- add_writer makes the function that writes batches into a segment: as it names the table, its plan is made once and not for each commit.
CREATE OR REPLACE FUNCTION weir.add_writer(segment int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    EXECUTE format($create$
        CREATE OR REPLACE FUNCTION weir.write_%1$s(
            partitions bigint[], bases bigint[], bytes bigint[], times bigint[], records int[], sizes int[], starts int[], body bytea
        ) RETURNS void
        LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp
        SET jit = off
        AS $body$
        BEGIN
            INSERT INTO weir.batch_%1$s
            SELECT b.partition, b.base, b.byte, b.time, b.records, b.size, piece,
                   substring(body FROM b.start + piece * 8088 + 1 FOR least(8088, b.size - piece * 8088))
            FROM unnest(partitions, bases, bytes, times, records, sizes, starts) AS b(partition, base, byte, time, records, size, start),
                 generate_series(0, (b.size - 1) / 8088) AS piece
            WHERE b.base IS NOT NULL;
        END $body$
    $create$, segment);
    EXECUTE format('REVOKE ALL ON FUNCTION weir.write_%s FROM PUBLIC', segment);
END $$;

-- add_segment opens a segment: a new table, empty, and its writer. It takes locks that readers and writers of other segments do not meet.
CREATE OR REPLACE FUNCTION weir.add_segment(for_survivors boolean) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    n int;
BEGIN
    INSERT INTO weir.segment (survivors) VALUES (for_survivors) RETURNING number INTO n;
    -- Autovacuum would read every page again, to no use: rows here never change and go all at once.
    EXECUTE format('CREATE TABLE weir.batch_%s (PRIMARY KEY (partition_id, base_offset, piece)) '
                   'INHERITS (weir.batch) WITH (autovacuum_enabled = off)', n);
    PERFORM weir.add_writer(n);
END $$;

-- drop_segment drops a sealed segment of which nothing is wanted. It waits for no lock: where somebody is looking at the table
-- it fails, and is tried again later; so nobody ever queues behind it.
CREATE OR REPLACE FUNCTION weir.drop_segment(victim int) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    EXECUTE format('LOCK TABLE weir.batch_%s IN ACCESS EXCLUSIVE MODE NOWAIT', victim);
    -- Behind the lock: a commit that was under way may have written here.
    IF EXISTS (SELECT FROM weir.fill f WHERE f.number = victim AND f.runs > 0) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE weir.batch_%s', victim);
    EXECUTE format('DROP FUNCTION IF EXISTS weir.write_%s', victim);
    DELETE FROM weir.segment WHERE number = victim;
    RETURN true;
END $$;

SELECT weir.add_writer(number) FROM weir.segment;

SELECT weir.add_segment(false) WHERE NOT EXISTS (SELECT FROM weir.segment);
