-- commit_position moves a group's position in a topic to next_offset, if the transaction commits. It is refused
--
--   with WE004 unless next_offset is above the position, and from_offset, where it is given, is the position. A group that has committed nothing
--   is at the beginning;
--   with WE005 unless generation, where it is given, is the group's, and member, where it is given, is in the group;
--   with WE006 where next_offset is above the end of the partition, as the transaction sees it.
--
-- Of two transactions at once for one position the second waits for the first, and then finds what that one committed.
CREATE OR REPLACE FUNCTION weir.commit_position(
    grp text, about weir.topic, partition int, next_offset bigint, from_offset bigint, member text, generation int
) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    at     record;
    held   record; -- what the partition holds
    own    bigint;
    me     xid8;
BEGIN
    PERFORM weir.durably();
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
    SELECT p.first_offset, p.next_offset INTO held FROM weir.newest_partition(about.partitions[partition + 1]) AS p;
    IF held.next_offset IS NULL THEN -- the topic is being deleted
        PERFORM weir.no_topic(about.name);
    ELSIF next_offset > held.next_offset THEN
        RAISE 'next_offset is %, and partition % of topic "%" ends at %', next_offset, partition, about.name, held.next_offset
        USING ERRCODE = 'WE006', HINT = 'Commit what you have read: the offset of the last event handled, plus one. '
            'A REPEATABLE READ or SERIALIZABLE transaction sees the end that was there when it began.';
    END IF;

    -- Queue for the position. Only behind this lock is it read.
    FOR attempt IN 1..2 LOOP
        SELECT c.id INTO own FROM weir.consumer c
        WHERE c.grp = commit_position.grp AND c.topic = about.id AND c.partition = commit_position.partition FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.consumer (grp, topic, partition) VALUES (grp, about.id, partition) ON CONFLICT DO NOTHING;
    END LOOP;
    IF own IS NULL THEN -- the topic was deleted, and the row forgotten, while we waited for it
        PERFORM weir.no_topic(about.name);
    END IF;
    SELECT p.place, p.base INTO at FROM weir.find_position(grp, about.id, partition) AS p;
    IF at.place IS NULL AND from_offset > held.first_offset THEN
        RAISE 'group "%" has committed nothing in partition % of topic "%", which begins at %, and is not at %',
            grp, partition, about.name, held.first_offset, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s. To begin elsewhere, commit without from_offset once.', held.first_offset);
    ELSIF from_offset <> at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%", and not at %', grp, at.place, partition, about.name, from_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
    ELSIF next_offset <= at.place THEN
        RAISE 'group "%" is at offset % of partition % of topic "%" already, and % is not above it', grp, at.place, partition, about.name, next_offset
        USING ERRCODE = 'WE004', HINT = format('Roll back, and go on from %s: what was before it has been handled.', at.place);
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
