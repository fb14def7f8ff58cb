-- base_of tells on what a committed offset is built: the stamp of the key that began what goes on with it. A key that does not say so (is_carried) began
-- something of its own. NULL: it goes on with whatever is there.
CREATE OR REPLACE FUNCTION weir.base_of(committed json, stamp bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN weir.is_carried(committed) THEN substring(committed ->> 'metadata' FROM '^weir\.commit_offset \d+ (\d{1,18})(?:;|$)')::bigint ELSE stamp END;
