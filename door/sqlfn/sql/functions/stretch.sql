-- stretch returns the end of a stretch of whole batches that begins with the batch of an offset: it ends after about 256 KiB, or with the segment.
-- After this call the segment cannot be dropped until the transaction ends.
CREATE OR REPLACE FUNCTION weir.stretch(id bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
:by_index
AS $$
DECLARE
    p    weir.partition;
    r    weir.run;
    stop bigint;
BEGIN
    SELECT * INTO p FROM weir.newest_partition(stretch.id);
    SELECT * INTO STRICT r FROM weir.runs(p, low) LIMIT 1;
    EXECUTE format(
        'SELECT base_offset FROM weir.batch_%1$s
         WHERE partition_id = $1 AND base_offset > $2 AND base_offset < $3 AND piece = 0
           AND byte >= 262144 + (SELECT byte FROM weir.batch_%1$s
                                 WHERE partition_id = $1 AND base_offset <= $2 ORDER BY base_offset DESC LIMIT 1)
         ORDER BY base_offset LIMIT 1', r.segment)
    INTO stop USING p.id, low, least(high, r.next_offset);
    RETURN coalesce(stop, least(high, r.next_offset));
EXCEPTION WHEN undefined_table THEN
    RAISE 'retention deleted offset % while this transaction was reading it', low
    USING ERRCODE = 'serialization_failure', HINT = 'Read again, in a new transaction.';
END $$;
