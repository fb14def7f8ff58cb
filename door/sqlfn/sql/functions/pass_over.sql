-- pass_over says what a reader at an offset can do who meets damage further on: rows come by the stretch, and with damage in it none do.
CREATE OR REPLACE FUNCTION weir.pass_over(reader bigint, damaged bigint, next_offset bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    RETURN format('Run weir doctor, and restore a backup; or %sread from offset %s on.',
        CASE WHEN reader < damaged THEN format('read offsets %s to %s over HTTP or Kafka, and ', reader, damaged - 1) ELSE '' END, next_offset);
END $$;
