-- overhead returns an upper bound of the bytes that a batch with one record has in addition to key and value: 80, and for each header less than the
-- punctuation of its JSON.
CREATE OR REPLACE FUNCTION weir.overhead(headers jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 80 + coalesce(octet_length(headers::text), 0);
