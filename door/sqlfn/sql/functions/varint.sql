CREATE OR REPLACE FUNCTION weir.varint(raw bytea, at int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN get_byte(raw, at) < 128 THEN get_byte(raw, at)
    WHEN get_byte(raw, at + 1) < 128 THEN (get_byte(raw, at) & 127) + (get_byte(raw, at + 1) << 7)
    WHEN get_byte(raw, at + 2) < 128 THEN (get_byte(raw, at) & 127) + ((get_byte(raw, at + 1) & 127) << 7) + (get_byte(raw, at + 2) << 14)
    ELSE weir.long_varint(raw, at)
END;
