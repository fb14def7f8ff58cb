-- commit_position sets a group's position in a topic to next_offset, if the transaction commits. It fails
--
--   with WE004 if next_offset is not above the current position, or from_offset is given and is not the current position. A group that has committed
--   nothing is at the first offset;
--   with WE005 if generation is given and is not the group's, or member is given and is not in the group;
--   with WE006 if next_offset is past the end of the partition, as the transaction sees it.
--
-- If two transactions commit the same position at the same time, the second waits for the first, and then sees what the first committed.
CREATE OR REPLACE FUNCTION weir.commit_position(
    grp text, about weir.topic, partition int, next_offset bigint, from_offset bigint, member text, generation int
) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    at     record;
    held   record; -- the offsets of the partition
    own    bigint;
    me     xid8;
BEGIN
    PERFORM weir.durably();
    PERFORM weir.check_consumer(grp, about, partition);
    IF next_offset IS NULL THEN
        RAISE 'next_offset is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'It is the offset of the next event to handle.';
    ELSIF next_offset < 0 OR from_offset < 0 THEN
        RAISE '% is negative', CASE WHEN next_offset < 0 THEN 'next_offset' ELSE 'from_offset' END
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Offsets begin at 0.';
    END IF;
    IF generation IS NOT NULL OR member IS NOT NULL THEN
        PERFORM weir.check_member(grp, member, generation);
    END IF;
    SELECT p.first_offset, p.next_offset INTO held FROM weir.newest_partition(about.partitions[partition + 1]) AS p;
    IF held.next_offset IS NULL THEN -- the topic is being deleted
        PERFORM weir.no_topic(about.name);
    ELSIF next_offset > held.next_offset THEN
        RAISE 'next_offset is %, which is past the end of partition % of topic "%": its next offset is %', next_offset, partition, about.name, held.next_offset
        USING ERRCODE = 'WE006', HINT = 'Commit what you have read: the offset of the last event handled, plus one. '
            'A REPEATABLE READ or SERIALIZABLE transaction sees the end that was there when it began.';
    END IF;

    -- Lock the position before it is read.
    FOR attempt IN 1..2 LOOP
        SELECT c.id INTO own FROM weir.consumer c
        WHERE c.grp = commit_position.grp AND c.topic = about.id AND c.partition = commit_position.partition FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.consumer (grp, topic, partition) VALUES (grp, about.id, partition) ON CONFLICT DO NOTHING;
    END LOOP;
    IF own IS NULL THEN -- the topic and the row were deleted while we waited for the lock
        PERFORM weir.no_topic(about.name);
    END IF;
    SELECT p.place, p.base INTO at FROM weir.find_position(grp, about.id, partition) AS p;
    IF at.place IS NULL AND from_offset > held.first_offset THEN
        RAISE 'group "%" has committed nothing in partition % of topic "%", so it is at the first offset, %, but from_offset is %',
            grp, partition, about.name, held.first_offset, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and continue from %s. To begin at another offset, commit once without from_offset.', held.first_offset);
    ELSIF from_offset <> at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%", but from_offset is %', grp, at.place, partition, about.name, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and continue from %s: the events before it are already handled.', at.place);
    ELSIF next_offset <= at.place THEN
        RAISE 'group "%" is already at offset % of partition % of topic "%"; next_offset is %, and must be higher', grp, at.place, partition, about.name, next_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and continue from %s: the events before it are already handled.', at.place);
    END IF;
    UPDATE weir.consumed x
    SET next_offset = commit_position.next_offset, base = at.base, committed_at = clock_timestamp(),
        writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.consumer = own AND x.turn = (SELECT max(y.turn) FROM weir.consumed y WHERE y.consumer = own);
    IF NOT FOUND THEN
        INSERT INTO weir.consumed (consumer, next_offset, base, committed_at) VALUES (own, next_offset, at.base, clock_timestamp());
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, partition, size, grp, next_offset, base)
    VALUES (me, about.id, partition, 100, grp, next_offset, at.base);
END $$;
