-- position returns the offset of the next event that a group handles in a partition; NULL if it has committed nothing.
CREATE OR REPLACE FUNCTION weir.position(grp text, topic text, partition int) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
:pinned
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
BEGIN
    PERFORM weir.check_consumer(grp, about, partition);
    RETURN (weir.find_position(grp, about.id, partition)).place;
END $$;
