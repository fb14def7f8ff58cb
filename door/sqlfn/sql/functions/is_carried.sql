-- is_carried tells whether a committed offset goes on with what was committed before, and takes nothing of it back: the mover carried it, or a
-- consumer of the group handled events without weir.commit_offset. Its metadata says so (group.Beside), and names that offset. A Kafka client that
-- commits with the metadata that it fetched is not taken for them, but where it commits the very offset.
CREATE OR REPLACE FUNCTION weir.is_carried(committed json) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce((committed ->> 'metadata') ~ ('^weir\.commit_offset ' || (committed ->> 'offset') || '( |;|$)'), false);
