CREATE OR REPLACE FUNCTION weir.int8_at(raw bytea, at int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN ('x' || encode(substring(raw FROM at + 1 FOR 8), 'hex'))::bit(64)::bigint;
