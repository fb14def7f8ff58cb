-- sweep_requests deletes requests whose sessions have not looked for the answer for a long time. It returns how many are left, and an id up to which no visible request
-- exists in this incarnation.
CREATE OR REPLACE FUNCTION weir.sweep_requests(OUT remaining bigint, OUT low bigint, OUT incarnation bigint)
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    old bigint;
    top bigint := coalesce(pg_sequence_last_value('weir.claim_request_id_seq'), 0);
BEGIN
    FOR old IN
        SELECT r.id FROM weir.claim_request r WHERE r.seen_at < clock_timestamp() - interval '1 minute' ORDER BY r.id FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM weir.claim_request r WHERE r.id = old;
    END LOOP;
    SELECT count(*), coalesce(min(r.id) - 1, top), weir.incarnation() INTO remaining, low, incarnation FROM weir.claim_request r WHERE r.id >= 0;
END $$;
