-- add_writer creates the function that writes batches into a segment. The function has the name of the table in its text,
-- so its plan is made once, not for each commit.
CREATE OR REPLACE FUNCTION weir.add_writer(segment int) RETURNS void
LANGUAGE plpgsql
:pinned
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
