-- told reads a value in which clients' own words stand. PostgreSQL's text takes all of them but the zero character.
CREATE OR REPLACE FUNCTION weir.told(value bytea) RETURNS json
LANGUAGE sql IMMUTABLE
RETURN replace(convert_from(value, 'UTF8'), '\u0000', '\ufffd')::json;
