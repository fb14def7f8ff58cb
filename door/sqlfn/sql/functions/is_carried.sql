-- is_carried tells whether a committed offset came from weir.commit_offset: its metadata says so, and names that offset. A Kafka client that
-- commits with the metadata that it fetched is not taken for the mover, but where it commits the very offset.
CREATE OR REPLACE FUNCTION weir.is_carried(committed json) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce(committed ->> 'metadata' = 'weir.commit_offset ' || (committed ->> 'offset'), false);
