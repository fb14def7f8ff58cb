-- keep_requests marks requests, so that their sessions know that a mover still handles them. It returns which of them have a session that still waits: their places in the array.
CREATE OR REPLACE FUNCTION weir.keep_requests(taker text, requests bigint[], asked timestamptz[]) RETURNS int[]
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    now     timestamptz := clock_timestamp();
    waiting int[]       := '{}';
    n       int;
BEGIN
    FOR n IN 1 .. cardinality(requests) LOOP
        IF EXISTS (
            SELECT FROM weir.claim_request r
            WHERE r.id = requests[n] AND r.asked_at = asked[n] AND r.taken_by = taker AND r.answer IS NULL AND r.seen_at > now - interval '3 s' AND weir.is_connected(r.pid)
        ) THEN
            waiting := waiting || n;
            PERFORM FROM weir.claim_request r WHERE r.id = requests[n] FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE weir.claim_request r SET taken_until = now + interval '5 s' WHERE r.id = requests[n];
            END IF;
        END IF;
    END LOOP;
    RETURN waiting;
END $$;
