-- octets returns a key or value as bytes. door/sqlfn has the same functions.
CREATE OR REPLACE FUNCTION weir.octets(value text) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN convert_to(value, 'UTF8');

CREATE OR REPLACE FUNCTION weir.octets(value jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN convert_to(value::text, 'UTF8');

CREATE OR REPLACE FUNCTION weir.octets(value bytea) RETURNS bytea LANGUAGE sql IMMUTABLE RETURN value;
