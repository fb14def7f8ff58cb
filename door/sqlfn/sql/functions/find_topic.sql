-- find_topic returns the topic of a name.
CREATE OR REPLACE FUNCTION weir.find_topic(topic text) RETURNS weir.topic
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    found_topic weir.topic;
BEGIN
    SELECT * INTO found_topic FROM weir.topic t WHERE t.name = find_topic.topic;
    IF NOT FOUND THEN
        PERFORM weir.no_topic(topic);
    END IF;
    RETURN found_topic;
END $$;
