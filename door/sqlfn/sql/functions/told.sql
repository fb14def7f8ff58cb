-- told reads a value in which clients' own words stand. PostgreSQL's text takes all of them but the zero character. The planner inlines it: it is
-- not declared IMMUTABLE, for the cast to json is not.
CREATE OR REPLACE FUNCTION weir.told(value bytea) RETURNS json
LANGUAGE sql STABLE
RETURN replace(convert_from(value, 'UTF8'), '\u0000', '\ufffd')::json;
