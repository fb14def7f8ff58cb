-- pass_over says what a reader can do who meets damage, where the next batch begins.
CREATE OR REPLACE FUNCTION weir.pass_over(next_offset bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN format('Run weir doctor, and restore a backup; or read from offset %s on. What is before the damage can be read with max_events.', next_offset);
END $$;
