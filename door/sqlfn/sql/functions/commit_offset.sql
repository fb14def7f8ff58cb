-- commit_offset sets a group's position to next_offset, if the transaction commits: it has handled all events before that offset. It fails with
-- WE004 if next_offset is not above the current position, or from_offset is given and is not the current position.
--
-- See commit_position.
CREATE OR REPLACE FUNCTION weir.commit_offset(
    grp text, topic text, partition int, next_offset bigint,
    from_offset bigint DEFAULT NULL, member text DEFAULT NULL, generation int DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM weir.commit_position(grp, weir.find_topic(topic), partition, next_offset, from_offset, member, generation);
END $$;
