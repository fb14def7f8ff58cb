-- json_of_value parses a JSON value that has text from clients. PostgreSQL's text can have any character except the zero character. The planner inlines it, which is why it is
-- not declared IMMUTABLE: the cast to json is not.
CREATE OR REPLACE FUNCTION weir.json_of_value(value bytea) RETURNS json
LANGUAGE sql STABLE
RETURN replace(convert_from(value, 'UTF8'), '\u0000', '\ufffd')::json;
