-- keep_requests tells sessions that a mover is still at their requests. It returns those of the requests whose session still waits.
CREATE OR REPLACE FUNCTION weir.keep_requests(taker text, requests bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    now     timestamptz := clock_timestamp();
    waiting bigint[]    := '{}';
    request bigint;
BEGIN
    FOREACH request IN ARRAY requests LOOP
        IF EXISTS (
            SELECT FROM weir.claim_request r
            WHERE r.id = request AND r.taken_by = taker AND r.answer IS NULL AND r.seen_at > now - interval '3 s' AND weir.is_connected(r.pid)
        ) THEN
            waiting := waiting || request;
            PERFORM FROM weir.claim_request r WHERE r.id = request FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE weir.claim_request r SET taken_until = now + interval '5 s' WHERE r.id = request;
            END IF;
        END IF;
    END LOOP;
    RETURN waiting;
END $$;
