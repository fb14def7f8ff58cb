-- bounds tells what every partition holds.
--
-- Where the table is small it is read from end to end. Where old versions swell it (a transaction was left open somewhere),
-- that would cost more with every flush.
CREATE OR REPLACE FUNCTION weir.bounds() RETURNS TABLE (id bigint, first_offset bigint, next_offset bigint, bytes bigint)
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    IF pg_relation_size('weir.partition') < 1048576 THEN
        RETURN QUERY SELECT x.id, x.first_offset, x.next_offset, x.next_byte - x.first_byte FROM weir.partition x;
    ELSE
        RETURN QUERY SELECT x.id, x.first_offset, x.next_offset, x.next_byte - x.first_byte FROM weir.newest x;
    END IF;
END $$;
