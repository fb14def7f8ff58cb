CREATE OR REPLACE FUNCTION weir.varint_size(raw bytea, at int) RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN get_byte(raw, at) < 128 THEN 1
    WHEN get_byte(raw, at + 1) < 128 THEN 2
    WHEN get_byte(raw, at + 2) < 128 THEN 3
    WHEN get_byte(raw, at + 3) < 128 THEN 4
    WHEN get_byte(raw, at + 4) < 128 THEN 5
    WHEN get_byte(raw, at + 5) < 128 THEN 6
    WHEN get_byte(raw, at + 6) < 128 THEN 7
    WHEN get_byte(raw, at + 7) < 128 THEN 8
    WHEN get_byte(raw, at + 8) < 128 THEN 9
    ELSE 10
END;
