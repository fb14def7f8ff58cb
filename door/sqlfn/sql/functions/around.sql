-- around tells how many bytes a batch with one record has beside its key and its value, at most: 80, and around a header less than the
-- punctuation of its JSON.
CREATE OR REPLACE FUNCTION weir.around(headers jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 80 + coalesce(octet_length(headers::text), 0);
