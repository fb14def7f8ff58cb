-- find_position reads both places of a group's position. It returns the position (NULL if there is none) and the base for the next one. If both have the same base, the
-- higher one is valid, whichever was written last; otherwise the key is valid.
CREATE OR REPLACE FUNCTION weir.find_position(grp text, topic uuid, partition int, OUT consumer bigint, OUT place bigint, OUT base bigint)
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    own   weir.consumed;
    key   record;
    other json;
BEGIN
    SELECT c.id INTO consumer FROM weir.consumer c
    WHERE c.grp = find_position.grp AND c.topic = find_position.topic AND c.partition = find_position.partition;
    SELECT * INTO own FROM weir.consumed x WHERE x.consumer = find_position.consumer ORDER BY x.turn DESC LIMIT 1;
    SELECT s.value, weir.stamp(s.put_at) AS stamp INTO key FROM weir.newest_state(weir.offset_key(grp, topic, partition)) AS s;
    place := own.next_offset;
    IF key.value IS NOT NULL THEN
        other := weir.json_of_value(key.value);
        base := weir.base_of(other, key.stamp);
        IF base IS NULL OR own.base = base THEN
            place := greatest(own.next_offset, (other ->> 'offset')::bigint);
        ELSE
            place := (other ->> 'offset')::bigint;
        END IF;
    END IF;
END $$;
