-- drop_segment drops a sealed segment in which nothing is needed. It waits for no lock: while a session uses the table it
-- fails, and is retried later. So no session has to wait behind its lock.
CREATE OR REPLACE FUNCTION weir.drop_segment(victim int) RETURNS boolean
LANGUAGE plpgsql
:by_index
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot from before the lock would not show what a commit has written since.
        RAISE 'weir must drop segments in read committed transactions, but the isolation level is %', current_setting('transaction_isolation')
        USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
    END IF;
    EXECUTE format('LOCK TABLE weir.batch_%s IN ACCESS EXCLUSIVE MODE NOWAIT', victim);
    -- Checked after locking: a commit in progress may have written to this segment.
    -- OFFSET 0: its runs are found first, by run_segment, whatever the statistics say.
    IF EXISTS (
        SELECT FROM (SELECT x.partition_id FROM weir.run x WHERE x.segment = victim OFFSET 0) AS r
        WHERE EXISTS (SELECT FROM weir.partition p WHERE p.id = r.partition_id)
    ) OR EXISTS (SELECT FROM weir.newest n WHERE n.segment = victim AND n.first_offset < n.next_offset) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE weir.batch_%s', victim);
    EXECUTE format('DROP FUNCTION IF EXISTS weir.write_%s', victim);
    DELETE FROM weir.segment WHERE number = victim;
    RETURN true;
END $$;
