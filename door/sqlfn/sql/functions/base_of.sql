-- base_of returns the base of a committed offset: the stamp of the key that it continues from. A key without a base in its metadata (is_carried) is a new
-- start, so its own stamp is the base. NULL: it continues from any key.
CREATE OR REPLACE FUNCTION weir.base_of(committed json, stamp bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN weir.is_carried(committed) THEN substring(committed ->> 'metadata' FROM '^weir\.commit_offset \d+ (\d{1,18})(?:;|$)')::bigint ELSE stamp END;
