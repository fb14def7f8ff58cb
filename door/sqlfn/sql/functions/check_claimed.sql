-- check_claimed fails with WE008 if the claim of a receipt (parse_receipt) is over: the message is done, was given back, or was claimed again.
CREATE OR REPLACE FUNCTION weir.check_claimed(fields text[]) RETURNS void
LANGUAGE plpgsql VOLATILE -- it sees what was committed before its statements
:by_index
AS $$
DECLARE
    state json;
    part  json;
    run   json;
BEGIN
    SELECT weir.json_of_value(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/%s', fields[1], fields[2])) AS s;
    IF state IS NULL THEN -- a queue with limits has one state
        SELECT weir.json_of_value(s.value) INTO state FROM weir.newest_state(format('queue/state/%s/all', fields[1])) AS s;
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
        USING ERRCODE = 'WE008', HINT = 'Roll back: this session no longer has the message.';
    END IF;
END $$;
