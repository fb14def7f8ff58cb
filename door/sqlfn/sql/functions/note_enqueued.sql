-- note_enqueued writes where a move put messages whose ids somebody has (tables/050_enqueued.sql). The arrays have an element for each run of messages. batches says in which
-- batch of the move a run is, whose base offset is in bases, and offsets where in the batch; 0: in none, because another message has the unique key, and offsets says
-- where that one is. dues has the time until which a message is delayed, in milliseconds; 0: it is not. It returns true.
CREATE OR REPLACE FUNCTION weir.note_enqueued(
    bases bigint[], firsts bigint[], lasts bigint[], partitions bigint[], batches int[], offsets bigint[], dues bigint[]
) RETURNS boolean
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    INSERT INTO weir.enqueued AS e (first, last, partition, "offset", kept_until)
    SELECT n.first, n.last, n.partition, coalesce(bases[nullif(n.batch, 0)], 0) + n.at, greatest(clock_timestamp(), to_timestamp(n.due / 1000.0)) + interval '7 days'
    FROM unnest(firsts, lasts, partitions, batches, offsets, dues) AS n(first, last, partition, batch, at, due)
    ON CONFLICT (first) DO UPDATE
    SET last = EXCLUDED.last, partition = EXCLUDED.partition, "offset" = EXCLUDED."offset", kept_until = EXCLUDED.kept_until;
    RETURN true;
END $$;
