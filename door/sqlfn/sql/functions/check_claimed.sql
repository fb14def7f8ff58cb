-- check_claimed fails with WE008 if the claim of a receipt (parse_receipt) is over: the message is done, was given back, or was claimed again.
CREATE OR REPLACE FUNCTION weir.check_claimed(fields text[]) RETURNS void
LANGUAGE plpgsql VOLATILE -- it sees what was committed before its statements
:by_index
AS $$
DECLARE
    state json;
    part  json;
    run   record;
BEGIN
    SELECT weir.json_of_value(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/%s', fields[1], fields[2])) AS s;
    IF state IS NULL THEN -- a queue with limits has one state
        SELECT weir.json_of_value(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/all', fields[1])) AS s;
    END IF;
    SELECT p INTO part FROM json_array_elements(state -> 'parts') AS p WHERE (p ->> 'partition')::bigint = fields[2]::bigint;
    SELECT x.fate, x.attempt, x.nonce INTO run
    FROM weir.queue_runs((part ->> 'floor')::bigint, part -> 'runs', NULL) AS x
    WHERE x.upto > fields[3]::bigint AND (part ->> 'floor')::bigint <= fields[3]::bigint
    ORDER BY x.upto LIMIT 1;
    IF run IS NULL OR run.fate <> 'claimed' OR run.attempt <> fields[4]::int OR run.nonce <> fields[5]
       OR EXISTS (SELECT FROM weir.newest_state('queue/gone/' || fields[1])) THEN
        RAISE 'the receipt is stale: the message is done, was given back, or was claimed again'
        USING ERRCODE = 'WE008', HINT = 'Roll back: this session no longer has the message.';
    END IF;
END $$;
