-- A number in a batch's records lies in groups of seven bits, the lowest first, each in a byte whose top bit says that another follows.
-- varint reads the one at a place; varint_size tells how many bytes it has. Both are so plain that the planner puts them in place of
-- their calls.
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
