-- add_piece_writer creates insert_piece, which writes a batch that fits into one piece. The segment that takes commits is in its text,
-- so the plan is made once. A commit that finds another segment open, as it does while the next one is opened, has it planned.
CREATE OR REPLACE FUNCTION weir.add_piece_writer(open int) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    EXECUTE format($create$
        CREATE OR REPLACE FUNCTION weir.insert_piece(
            segment int, partition bigint, base bigint, byte bigint, max_time bigint, records int, size int, bytes bytea
        ) RETURNS void
        LANGUAGE plpgsql
        SET search_path = pg_catalog, pg_temp
        SET jit = off
        AS $body$
        BEGIN
            IF segment = %1$s THEN
                INSERT INTO weir.batch_%1$s VALUES (partition, base, byte, max_time, records, size, 0, bytes);
            ELSE
                EXECUTE format('INSERT INTO weir.batch_%%s VALUES ($1, $2, $3, $4, $5, $6, 0, $7)', segment)
                USING partition, base, byte, max_time, records, size, bytes;
            END IF;
        END $body$
    $create$, open);
    REVOKE ALL ON FUNCTION weir.insert_piece FROM PUBLIC;
END $$;
