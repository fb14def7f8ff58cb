-- escape returns a name as a part of a key, like Go's url.PathEscape, which use/group calls.
CREATE OR REPLACE FUNCTION weir.escape(name text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN name ~ '^[a-zA-Z0-9_.~$&+=:@-]*$' THEN name
    ELSE (
        SELECT string_agg(
            CASE WHEN chr(b) ~ '[a-zA-Z0-9_.~$&+=:@-]' THEN chr(b) ELSE '%' || upper(lpad(to_hex(b), 2, '0')) END, '' ORDER BY i)
        FROM (
            SELECT i, get_byte(convert_to(name, 'UTF8'), i) AS b FROM generate_series(0, octet_length(name) - 1) AS i
        ) AS bytes
    )
END;
