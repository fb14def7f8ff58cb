-- add_segment opens a segment: a new table, empty, and its writer. It takes locks that readers and writers of other segments do not meet.
CREATE OR REPLACE FUNCTION weir.add_segment(for_survivors boolean) RETURNS void
LANGUAGE plpgsql
:pinned
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
