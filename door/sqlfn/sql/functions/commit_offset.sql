-- commit_offset moves a group's position to next_offset, if the transaction commits. It is refused
--
--   with WE004 unless next_offset is above the position, and from_offset, where it is given, is the position;
--   with WE005 unless generation, where it is given, is the group's, and member, where it is given, is in the group.
--
-- Of two transactions at once for one position the second waits for the first, and then finds what that one committed.
CREATE OR REPLACE FUNCTION weir.commit_offset(
    grp text, topic text, partition int, next_offset bigint,
    from_offset bigint DEFAULT NULL, member text DEFAULT NULL, generation int DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    about weir.topic := weir.find_topic(topic);
    at    record;
    own   bigint;
    me    xid8;
BEGIN
    PERFORM weir.check_consumer(grp, about, partition);
    IF next_offset IS NULL THEN
        RAISE 'next_offset is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'It is the offset of the next event to handle.';
    ELSIF next_offset < 0 OR from_offset < 0 THEN
        RAISE '% is negative', CASE WHEN next_offset < 0 THEN 'next_offset' ELSE 'from_offset' END
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Offsets count from 0.';
    END IF;
    IF generation IS NOT NULL OR member IS NOT NULL THEN
        PERFORM weir.check_member(grp, member, generation);
    END IF;

    -- Queue for the position. Only behind this lock is it read.
    FOR attempt IN 1..2 LOOP
        SELECT c.id INTO own FROM weir.consumer c
        WHERE c.grp = commit_offset.grp AND c.topic = about.id AND c.partition = commit_offset.partition FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.consumer (grp, topic, partition) VALUES (grp, about.id, partition) ON CONFLICT DO NOTHING;
    END LOOP;
    IF own IS NULL THEN -- the topic was deleted, and the row forgotten, while we waited for it
        PERFORM weir.no_topic(topic);
    END IF;
    SELECT p.place, p.base INTO at FROM weir.find_position(grp, about.id, partition) AS p;
    IF from_offset IS NOT NULL AND from_offset <> at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%", and not at %', grp, at.place, partition, topic, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
    ELSIF next_offset <= at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%" already, and % is not above it', grp, at.place, partition, topic, next_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
    END IF;
    UPDATE weir.consumed x
    SET next_offset = commit_offset.next_offset, base = at.base, committed_at = clock_timestamp(),
        writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.consumer = own AND x.turn = (SELECT max(y.turn) FROM weir.consumed y WHERE y.consumer = own);
    IF NOT FOUND THEN
        INSERT INTO weir.consumed (consumer, next_offset, base, committed_at) VALUES (own, next_offset, at.base, clock_timestamp());
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, partition, size, grp, next_offset, base)
    VALUES (me, about.id, partition, 100, grp, next_offset, at.base);
END $$;
