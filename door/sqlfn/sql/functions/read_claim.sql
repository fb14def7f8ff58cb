-- read_claim returns the answer to a request of this session, and deletes the request. If there is no answer yet, pause is the number of seconds after which to call again; NULL: this is the answer. Until then
-- it updates seen_at about once a second, so that movers know that the session still waits.
CREATE OR REPLACE FUNCTION weir.read_claim(request bigint, OUT messages jsonb, OUT pause float8, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    about  weir.claim_request;
    now    timestamptz := clock_timestamp();
    second CONSTANT interval := interval '1 s';
BEGIN
    -- Most answers come within milliseconds. To look again here costs much less than another call and transaction; new rows are visible only in READ COMMITTED.
    FOR n IN 1..10 LOOP
        EXIT WHEN current_setting('transaction_isolation') <> 'read committed' OR NOT EXISTS (
            SELECT FROM weir.claim_request r WHERE r.id = request AND r.answer IS NULL AND now < r.asked_at + 0.3 * second);
        PERFORM pg_sleep(0.002);
        now := clock_timestamp();
    END LOOP;
    SELECT * INTO about FROM weir.claim_request r WHERE r.id = request AND r.pid = pg_backend_pid() AND r.role = session_user;
    IF FOUND AND about.answer IS NULL AND (now < about.taken_until OR now > about.seen_at + 3 * second) THEN
        pause := CASE WHEN now < about.asked_at + 0.3 * second THEN 0.002 WHEN now < about.asked_at + 5 * second THEN 0.025 ELSE 0.05 END;
        IF now > about.seen_at + second THEN
            UPDATE weir.claim_request r
            SET seen_at = now, taken_until = CASE WHEN now > about.seen_at + 3 * second THEN now + 5 * second ELSE r.taken_until END -- this session was slow, not the mover
            WHERE r.id = request;
            IF about.taken_by IS NULL OR about.taken_until < now + 2 * second THEN
                PERFORM weir.notify('weir_claim', '');
            END IF;
        END IF;
        RETURN;
    END IF;
    DELETE FROM weir.claim_request r WHERE r.id = about.id RETURNING r.answer INTO messages; -- perhaps the answer has just been written
    IF messages IS NULL THEN
        code := 'WE010';
        message := CASE WHEN about.taken_by IS NULL THEN 'no running weir took the claim within 5 s: none runs, or each is busy with 1000 others'
            ELSE 'the weir that took the claim does not answer' END;
        hint := 'Only a running weir claims for SQL: is weir serve running on this database, in this version? If it is, try again, or claim in fewer sessions. If messages were claimed, they come again when their leases end.';
    ELSIF jsonb_typeof(messages) = 'object' THEN
        code := messages ->> 'code';
        message := messages ->> 'message';
        hint := messages ->> 'hint';
        messages := NULL;
    END IF;
END $$;
