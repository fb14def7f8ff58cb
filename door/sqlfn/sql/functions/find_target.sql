-- find_target returns the topic of a name for a caller that publishes: one that exists, or one that a waiting request will create.
CREATE OR REPLACE FUNCTION weir.find_target(topic text) RETURNS weir.topic
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    found_topic weir.topic;
BEGIN
    SELECT * INTO found_topic FROM weir.topic t WHERE t.name = find_target.topic;
    IF NOT FOUND THEN
        SELECT * INTO found_topic FROM weir.find_reserved(topic);
        IF NOT FOUND THEN
            PERFORM weir.no_topic(topic);
        END IF;
    END IF;
    RETURN found_topic;
END $$;
