-- A number in a batch's records is stored in groups of seven bits, the lowest first, one in each byte. The top bit of a byte is set if another byte follows.
-- varint reads the number at a place; varint_size returns how many bytes it has. Both are so simple that the planner inlines them.
CREATE OR REPLACE FUNCTION weir.long_varint(raw bytea, at int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
DECLARE
    n bigint := 0;
    b int;
BEGIN
    FOR i IN 0..9 LOOP
        b := get_byte(raw, at + i);
        n := n | ((b & 127)::bigint << 7 * i);
        EXIT WHEN b < 128;
    END LOOP;
    RETURN n;
END $$;
