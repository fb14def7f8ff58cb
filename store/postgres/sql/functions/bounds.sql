-- bounds returns the offsets and bytes that every partition holds.
--
-- A small table is read whole. Old versions make it large if a transaction is left open somewhere. Then a full read would
-- cost more with every flush, and the table is read by index.
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
