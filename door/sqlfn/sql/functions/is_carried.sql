-- is_carried reports whether a committed offset continues from an earlier one and undoes nothing: the mover wrote it, or a
-- consumer of the group that handled events without weir.commit_offset. Its metadata says this (group.Beside), and has the offset. So if a Kafka client
-- commits another offset with metadata that it fetched, that is not mistaken for one of these.
CREATE OR REPLACE FUNCTION weir.is_carried(committed json) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce((committed ->> 'metadata') ~ ('^weir\.commit_offset ' || (committed ->> 'offset') || '( |;|$)'), false);
