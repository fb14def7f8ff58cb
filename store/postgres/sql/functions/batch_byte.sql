-- batch_byte returns the first byte of the batch that begins at an offset, or the end of the partition; NULL if no batch begins there.
CREATE OR REPLACE FUNCTION weir.batch_byte(p weir.partition, base bigint) RETURNS bigint
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    r      weir.run;
    result bigint;
BEGIN
    IF base = p.next_offset THEN
        RETURN p.next_byte;
    END IF;
    SELECT * INTO r FROM weir.runs(p, base) LIMIT 1;
    EXECUTE format('SELECT byte FROM weir.batch_%s WHERE partition_id = $1 AND base_offset = $2 AND piece = 0', r.segment)
    INTO result USING p.id, base;
    RETURN result + r.shift;
END $$;
