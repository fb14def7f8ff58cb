-- look shows the mover what is new, in the order of ids: first a row about the inbox itself, then rows of it.
--
-- The inbox is full of entries of rows long gone wherever some transaction, anywhere in the database, may still see them. So a look goes
-- only where something new can be:
--
--   done  a snapshot. All rows that can be seen in it have been moved, or are left on purpose.
--   low   an id. Rows of transactions of which done does not know yet have a higher one.
--
-- New is a row with an id above low; or below it, of a transaction that was open in done, and is not any more. Transactions that are still
-- open cost nothing. That low is what it says is the mover's duty: it is an id that was given out before some transaction began that
-- done knows as ended. What done does not know began later still, and takes its ids after it began.
--
-- A transaction's number that was not given out yet came with a dump, from another server. What has it is there.
--
-- A round moves what can be seen in one snapshot, goal (NULL: that of this look), however many looks that takes; after is how far it
-- has come. Rows that are committed meanwhile wait for the next round, else one might overtake another that was before it.
--
-- Topics with a backlog have rounds of their own (door/sqlfn/lane.go): these look only for rows of these topics, and the others' without them (NULL: none).
-- So a look may go past many rows and find none. It goes through span ids at most, and tells where it ended: upto.
CREATE OR REPLACE FUNCTION weir.look(
    done pg_snapshot, low bigint, goal pg_snapshot, after bigint, most int, room bigint, span bigint, "only" uuid[], without uuid[])
RETURNS TABLE (
    -- This snapshot, the last id given out, incarnation(), life(), for how long publishers do not notify (weir.hushed), and the id up to which this look
    -- went; the highest there is: to the end.
    seen text, last bigint, incarnation bigint, server bigint, tables bigint, epoch bigint, hushed int, upto bigint,
    id bigint, topic uuid, partition int, key bytea, value bytea, headers text, size int, published_at timestamptz,
    grp text, next_offset bigint, base bigint
)
LANGUAGE plpgsql STABLE
:by_index
SET plan_cache_mode = force_generic_plan
SET enable_sort = off
SET enable_incremental_sort = off
AS $$
DECLARE
    until  pg_snapshot := coalesce(goal, pg_current_snapshot());
    unused xid8        := pg_snapshot_xmax(pg_current_snapshot()); -- this number, and all above
    start  bigint      := after;
BEGIN
    SELECT pg_current_snapshot()::text, CASE WHEN q.is_called THEN q.last_value ELSE 0 END, weir.incarnation(), l.server, l.tables, l.epoch,
           greatest(0, pg_sequence_last_value('weir.hushed') - extract(epoch FROM clock_timestamp()))::int
    INTO seen, last, incarnation, server, tables, epoch, hushed
    FROM weir.inbox_id_seq q, weir.life() l;
    -- Where there are more ids than span: start at the first row, of those up to low and then of the others. Else it would go through ids long gone.
    IF last - start > span THEN
        start := coalesce((
            SELECT min(i.id) - 1
            FROM pg_snapshot_xip(done) AS x
            CROSS JOIN LATERAL (
                SELECT w.id FROM weir.inbox w WHERE w.xact >= x AND w.xact <= x AND w.id > after AND w.id <= low ORDER BY w.xact, w.id LIMIT 1
            ) AS i
            WHERE pg_visible_in_snapshot(x, until) AND after < low), greatest(after, low));
    END IF;
    IF last - start > span AND start >= low THEN
        start := coalesce((SELECT w.id - 1 FROM weir.inbox w WHERE w.id > start ORDER BY w.id LIMIT 1), last);
    END IF;
    upto := CASE WHEN last - start > span THEN start + span ELSE 9223372036854775807 END;
    RETURN NEXT;
    RETURN QUERY
    SELECT NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::int, NULL::bigint,
           f.id, f.topic, f.partition, f.key, f.value, f.headers::text, f.size, f.published_at, f.grp, f.next_offset, f.base
    FROM (
        SELECT n.*, sum(n.size) OVER (ORDER BY n.id) - n.size AS before
        FROM (
            (
                SELECT i.*
                FROM pg_snapshot_xip(done) AS x
                CROSS JOIN LATERAL (
                    SELECT * FROM weir.inbox w
                    WHERE w.xact >= x AND w.xact <= x AND w.id > after AND w.id <= least(low, upto)
                      AND ("only" IS NULL OR w.topic = ANY ("only")) AND (without IS NULL OR w.topic <> ALL (without))
                    ORDER BY w.xact, w.id LIMIT most -- an order that inbox_xact has, and the primary key has not
                ) AS i
                WHERE pg_visible_in_snapshot(x, until) AND after < low
            )
            UNION ALL
            (
                SELECT * FROM weir.inbox w
                WHERE w.id > greatest(after, low) AND w.id <= upto
                  AND (pg_visible_in_snapshot(w.xact, until) OR w.xact >= unused)
                  AND NOT pg_visible_in_snapshot(w.xact, done)
                  AND ("only" IS NULL OR w.topic = ANY ("only")) AND (without IS NULL OR w.topic <> ALL (without))
                ORDER BY w.id LIMIT most
            )
            ORDER BY id LIMIT most
        ) AS n
    ) AS f
    WHERE f.before < room
    ORDER BY f.id;
END $$;
