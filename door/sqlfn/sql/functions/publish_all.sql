-- publish_all publishes one event for each value (text[], jsonb[] or bytea[]), in order. keys (text[] or bytea[]) has one key for each value, or is
-- NULL: no event has a key. It returns the number of events.
CREATE OR REPLACE FUNCTION weir.publish_all(topic text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
DECLARE
    about  weir.topic := weir.find_target(topic);
    events bigint;
BEGIN
    PERFORM weir.check_own(about);
    events := weir.post_all(about, keys, "values", headers, NULL); -- it checks the arrays
    IF events > 0 AND keys IS NULL THEN
        PERFORM weir.check_keyed(about, 'keys is null');
    ELSIF array_position(keys, NULL) IS NOT NULL THEN
        PERFORM weir.check_keyed(about, format('keys: element %s is null', array_position(keys, NULL)));
    END IF;
    RETURN events;
END $$;
