-- take_requests returns claim requests that no other mover handles, the oldest first. A request is identified by its id and its time: after a crash ids begin
-- anew, and a claim may still go on for an earlier request with the same id. low is an id up to which none exists, in the incarnation that sweep_requests
-- returned with it. Requests that their sessions have locked are left out, so that nobody waits for them.
CREATE OR REPLACE FUNCTION weir.take_requests(taker text, low bigint, incarnation bigint, room int)
RETURNS TABLE (id bigint, asked timestamptz, queue text, most int, lease bigint, wait bigint, worker text) -- milliseconds
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    now   timestamptz := clock_timestamp();
    start bigint      := CASE WHEN incarnation = weir.incarnation() THEN low ELSE 0 END;
BEGIN
    RETURN QUERY
    UPDATE weir.claim_request r
    SET taken_by = taker, taken_until = now + interval '5 s'
    FROM (
        SELECT w.id FROM weir.claim_request w
        WHERE w.id > start AND w.answer IS NULL AND w.seen_at > now - interval '3 s' AND (w.taken_by IS NULL OR w.taken_until < now + interval '2 s')
          AND weir.is_connected(w.pid)
        ORDER BY w.id LIMIT room
        FOR UPDATE SKIP LOCKED
    ) AS f
    WHERE r.id = f.id
    RETURNING r.id, r.asked_at, r.queue, r.most, (extract(epoch FROM r.lease) * 1000)::bigint, greatest(0, extract(epoch FROM r.wait_until - now) * 1000)::bigint, r.worker;
END $$;
