-- drop_segment drops a sealed segment of which nothing is wanted. It waits for no lock: where somebody is looking at the table
-- it fails, and is tried again later; so nobody ever queues behind it.
CREATE OR REPLACE FUNCTION weir.drop_segment(victim int) RETURNS boolean
LANGUAGE plpgsql
:by_index
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot from before the lock would not show what a commit wrote meanwhile.
        RAISE 'weir drops segments in read committed transactions, and this one is %', current_setting('transaction_isolation')
        USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
    END IF;
    EXECUTE format('LOCK TABLE weir.batch_%s IN ACCESS EXCLUSIVE MODE NOWAIT', victim);
    -- Behind the lock: a commit that was under way may have written here.
    IF EXISTS (SELECT FROM weir.fill f WHERE f.number = victim AND f.runs > 0) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE weir.batch_%s', victim);
    EXECUTE format('DROP FUNCTION IF EXISTS weir.write_%s', victim);
    DELETE FROM weir.segment WHERE number = victim;
    RETURN true;
END $$;
