-- damage_hint returns the hint for a reader that finds damage; the next batch begins at next_offset.
CREATE OR REPLACE FUNCTION weir.damage_hint(next_offset bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN format('Run weir doctor, and restore a backup; or read from offset %s on. To read the events before the damage, use max_events.', next_offset);
END $$;
