-- ack acknowledges the message of a receipt, if the transaction commits: what it did with the message and that the message is done are one. The receipt is that of
-- a claim, by whichever door. It is refused with WE008 where the claim is over: the message is done, or was claimed again.
--
-- The row in weir.acked comes first, and behind it the queue's state is read: the mover writes that before it deletes the row. So of two transactions the
-- second waits for the first, and then finds its row or what became of it; for this each statement has to see what was committed before it.
CREATE OR REPLACE FUNCTION weir.ack(receipt text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    fields text[] := regexp_match(receipt, '^([0-9a-f]{16})\.(\d{1,18})\.(\d{1,18})\.(\d{1,9})\.([0-9a-f]{8})$');
    state  json;
    part   json;
    run    json;
    me     xid8;
BEGIN
    IF fields IS NULL THEN
        RAISE 'receipt "%" is none', left(receipt, 128)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the text that came with the message, as it is.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'weir.ack needs a READ COMMITTED transaction, and this one is %', upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'feature_not_supported', HINT = 'A snapshot from before the call does not show whether the message is done.';
    END IF;
    PERFORM weir.durably();
    INSERT INTO weir.acked (queue, partition, "offset") VALUES (fields[1], fields[2]::bigint, fields[3]::bigint) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE 'the message is done: another transaction, or this one, acknowledged it' USING ERRCODE = 'WE008', HINT = 'Roll back: its work was done before.';
    END IF;
    SELECT weir.told(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/%s', fields[1], fields[2])) AS s;
    IF state IS NULL THEN -- a queue with limits has one state
        SELECT weir.told(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/all', fields[1])) AS s;
    END IF;
    SELECT p INTO part FROM json_array_elements(state -> 'parts') AS p WHERE (p ->> 'partition')::bigint = fields[2]::bigint;
    SELECT x.run INTO run
    FROM (
        SELECT r.run, (part ->> 'floor')::bigint + sum((r.run ->> 'n')::bigint) OVER (ORDER BY r.nth) AS next
        FROM json_array_elements(part -> 'runs') WITH ORDINALITY AS r(run, nth)
    ) AS x
    WHERE x.next > fields[3]::bigint AND (part ->> 'floor')::bigint <= fields[3]::bigint
    ORDER BY x.next LIMIT 1;
    IF run IS NULL OR run ->> 'fate' <> 'claimed' OR (run ->> 'attempt')::int <> fields[4]::int
       OR (run ->> 'nonce')::bigint <> ('x' || lpad(fields[5], 16, '0'))::bit(64)::bigint
       OR EXISTS (SELECT FROM weir.newest_state('queue/gone/' || fields[1])) THEN
        RAISE 'the receipt is stale: the message is done, was given back, or was claimed again'
        USING ERRCODE = 'WE008', HINT = 'Roll back: the message is not this session''s any more.';
    END IF;
    me := pg_current_xact_id();
    INSERT INTO weir.inbox (xact, topic, headers, size)
    VALUES (me, '00000000-0000-0000-0000-000000000000', jsonb_build_object('weir.queue', jsonb_build_object('ack', receipt)), 200);
    PERFORM weir.stir();
END $$;
