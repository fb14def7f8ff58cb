-- time_of converts a time in milliseconds since 1970: −1, which means no time, becomes NULL; a time past the last date of PostgreSQL becomes infinity.
CREATE OR REPLACE FUNCTION weir.time_of(ms bigint) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN ms < 0 THEN NULL WHEN ms > 9224318015000000 THEN 'infinity' ELSE to_timestamp(ms::float8 / 1000) END;
