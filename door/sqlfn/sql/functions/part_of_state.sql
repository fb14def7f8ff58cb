-- part_of_state reads what became of the messages of a partition from a state (use/claims/codec.go) under one of the keys: all messages below floor are done, those from next on
-- were never claimed, and queue_runs reads the runs between. first_offset and next_offset are the partition's.
CREATE OR REPLACE FUNCTION weir.part_of_state(
    keys text[], partition bigint, first_offset bigint, next_offset bigint, OUT floor bigint, OUT next bigint, OUT runs json, OUT texts json
)
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    part json;
    k    text;
BEGIN
    FOREACH k IN ARRAY keys LOOP
        SELECT e.part, s.value -> 'texts' INTO part, texts
        FROM (SELECT weir.json_of_value(n.value) AS value FROM weir.newest_state(k) AS n OFFSET 0) AS s
        CROSS JOIN LATERAL json_array_elements(s.value -> 'parts') AS e(part)
        WHERE (e.part ->> 'partition')::bigint = part_of_state.partition;
        EXIT WHEN FOUND;
    END LOOP;
    floor := coalesce((part ->> 'floor')::bigint, first_offset);
    next := greatest((part ->> 'next')::bigint, first_offset);
    runs := part -> 'runs';
END $$;
