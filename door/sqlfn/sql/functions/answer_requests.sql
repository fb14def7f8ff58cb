-- answer_requests writes a mover's answers: each is an array of messages, an error, or NULL (another mover shall claim). It returns which requests were answered, as their places in
-- the array. It leaves out a request whose session has ended, or has locked it at the moment.
CREATE OR REPLACE FUNCTION weir.answer_requests(taker text, requests bigint[], asked timestamptz[], answers text[]) RETURNS int[]
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    now      timestamptz := clock_timestamp();
    answered int[]       := '{}';
    n        int;
BEGIN
    FOR n IN 1 .. cardinality(requests) LOOP
        PERFORM FROM weir.claim_request r
        WHERE r.id = requests[n] AND r.asked_at = asked[n] AND r.taken_by = taker AND r.answer IS NULL AND r.seen_at > now - interval '3 s' AND weir.is_connected(r.pid)
        FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            IF answers[n] IS NULL THEN
                UPDATE weir.claim_request r SET taken_by = NULL WHERE r.id = requests[n];
                PERFORM weir.notify('weir_claim', '');
            ELSE
                UPDATE weir.claim_request r SET answer = answers[n]::jsonb WHERE r.id = requests[n];
            END IF;
            answered := answered || n;
        END IF;
    END LOOP;
    RETURN answered;
END $$;
