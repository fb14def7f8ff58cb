-- forget_enqueued deletes rows of weir.enqueued whose messages' records were deleted, up to a limit, and returns how many. A message that was delayed leaves its first
-- record long before it is done: so each row stays for a week, counted from the end of the delay. The plan: all rows once.
CREATE OR REPLACE FUNCTION weir.forget_enqueued(most int) RETURNS bigint
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM weir.enqueued e WHERE e.first IN (
        SELECT x.first FROM weir.enqueued x
        WHERE x.kept_until < clock_timestamp()
          AND NOT EXISTS (SELECT FROM weir.newest_partition(x.partition) AS p WHERE p.first_offset <= x."offset" + (x.last - x.first))
        LIMIT most);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;
