-- add_segment creates a segment: a new, empty table, and the functions that write to it. It takes no lock that readers or
-- writers of other segments need.
CREATE OR REPLACE FUNCTION weir.add_segment(for_survivors boolean) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    n int;
BEGIN
    INSERT INTO weir.segment (survivors) VALUES (for_survivors) RETURNING number INTO n;
    -- Autovacuum would read every page for nothing: rows never change, and are deleted with the whole table.
    EXECUTE format('CREATE TABLE weir.batch_%s (PRIMARY KEY (partition_id, base_offset, piece)) '
                   'INHERITS (weir.batch) WITH (autovacuum_enabled = off)', n);
    PERFORM weir.add_writer(n);
    IF NOT for_survivors THEN
        PERFORM weir.add_piece_writer(n);
    END IF;
END $$;
