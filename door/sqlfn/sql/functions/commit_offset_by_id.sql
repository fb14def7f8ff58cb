-- commit_offset_by_id is commit_offset with the topic's id (weir.topics) instead of its name. A topic that was deleted and created again with the same name has
-- another id: then it fails with WE005.
CREATE OR REPLACE FUNCTION weir.commit_offset_by_id(
    grp text, topic_id uuid, partition int, next_offset bigint,
    from_offset bigint DEFAULT NULL, member text DEFAULT NULL, generation int DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    about weir.topic;
BEGIN
    SELECT * INTO about FROM weir.topic t WHERE t.id = topic_id;
    IF NOT FOUND THEN
        RAISE 'no topic has the id %', coalesce(topic_id::text, 'null')
        USING ERRCODE = 'WE005', HINT = 'Roll back: the topic that the event is from was deleted.';
    END IF;
    PERFORM weir.commit_position(grp, about, partition, next_offset, from_offset, member, generation);
END $$;
