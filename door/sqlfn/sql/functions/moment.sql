-- moment gives a time in milliseconds since 1970: NULL for −1, which is none, and infinity where PostgreSQL has no date any more.
CREATE OR REPLACE FUNCTION weir.moment(ms bigint) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN ms < 0 THEN NULL WHEN ms > 9224318015000000 THEN 'infinity' ELSE to_timestamp(ms::float8 / 1000) END;
