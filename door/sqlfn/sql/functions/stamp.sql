-- stamp identifies one write of a key.
CREATE OR REPLACE FUNCTION weir.stamp(put_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (extract(epoch FROM put_at) * 1000000)::bigint;
