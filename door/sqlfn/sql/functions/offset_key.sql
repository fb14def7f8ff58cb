-- offset_key is the key of a group's committed offset, as use/group writes it.
CREATE OR REPLACE FUNCTION weir.offset_key(grp text, topic uuid, partition int) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'group/offset/' || weir.escape(grp) || '/' || replace(topic::text, '-', '') || '/' || partition;
