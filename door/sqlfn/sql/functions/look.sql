-- look returns the new rows of the inbox to the mover, in the order of ids. The first row of the result is about the inbox itself.
--
-- While any transaction in the database may still see deleted rows, the indexes of the inbox are full of entries of these rows. So look reads
-- only where new rows can be:
--
--   done  a snapshot. All rows that are visible in it have been moved, or were left on purpose.
--   low   an id. Rows of transactions that began after done have a higher id.
--
-- A row is new if its id is above low; or if it is below, and its transaction was open in done and has ended since. Transactions that are still
-- open cost nothing. For this to be true, the mover must choose as low an id that was assigned before the begin of some transaction that
-- done shows as ended. A transaction that begins after done begins after that one, too, and so gets ids above low.
--
-- If a row has a transaction number that this server has not assigned yet, it was restored from a dump of another server. Such rows count as committed.
--
-- A round moves the rows that are visible in one snapshot, goal (NULL: the snapshot of this look), in as many looks as it needs; after is the last id
-- that it has read. Rows that are committed in the meantime wait for the next round: otherwise a row could overtake an earlier row.
--
-- Topics with a backlog have their own rounds (door/sqlfn/lane.go), which read only rows of these topics; the other rounds leave them out (NULL: none).
-- So a look may skip many rows and find none. It reads at most span ids, and returns how far it read: upto.
--
-- creations is for its caller's version only: one that does not pass it knows no rows that ask weir to create something (tables/051_creation.sql).
CREATE OR REPLACE FUNCTION weir.look(
    done pg_snapshot, low bigint, goal pg_snapshot, after bigint, most int, room bigint, span bigint, "only" uuid[], without uuid[], creations boolean)
RETURNS TABLE (
    -- This snapshot, the last assigned id, incarnation(), life(), until when publishers do not notify (weir.hushed), and the id up to which this look
    -- has read; the highest bigint: to the end.
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
    unused xid8        := pg_snapshot_xmax(pg_current_snapshot()); -- this number and all above it are not assigned yet
    start  bigint      := after;
BEGIN
    SELECT pg_current_snapshot()::text, CASE WHEN q.is_called THEN q.last_value ELSE 0 END, weir.incarnation(), l.server, l.tables, l.epoch,
           greatest(0, pg_sequence_last_value('weir.hushed') - extract(epoch FROM clock_timestamp()))::int
    INTO seen, last, incarnation, server, tables, epoch, hushed
    FROM weir.inbox_id_seq q, weir.life() l;
    -- If there are more ids than span: start at the first existing row, of those up to low and then of the others. Otherwise it would read ids of rows that are long deleted.
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
                    ORDER BY w.xact, w.id LIMIT most -- the order of inbox_xact, which the primary key does not have
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
