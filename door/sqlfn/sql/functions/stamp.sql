-- stamp tells one writing of a key from another.
CREATE OR REPLACE FUNCTION weir.stamp(put_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (extract(epoch FROM put_at) * 1000000)::bigint;
