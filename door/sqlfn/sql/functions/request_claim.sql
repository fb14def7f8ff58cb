-- request_claim asks a running weir to claim messages for this session: see claim. The request takes effect when it is committed. A session waits
-- for one claim at a time: a new request replaces the one before, so that no session can use all the claims that a process serves (claimsMax in door/sqlfn/claim.go).
--
-- It returns NULL, and asks nothing, if weir shares a pool of connections with this session and four sessions of the pool wait already.
CREATE OR REPLACE FUNCTION weir.request_claim(queue text, most int, lease interval, wait interval, worker text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    request bigint;
    here    text := coalesce(host(inet_client_addr()), '');
BEGIN
    PERFORM weir.find_queue(queue), weir.check_lease(lease, true);
    IF most IS NULL OR most NOT BETWEEN 1 AND 1000 THEN
        RAISE 'most is %', most USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 1 to 1000 messages.';
    ELSIF wait IS NULL OR wait < interval '0' OR wait > interval '5 minutes' THEN
        RAISE 'wait is %', wait USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 0 to 5 minutes.';
    ELSIF octet_length(worker) > 256 THEN
        RAISE 'worker has % bytes', octet_length(worker) USING ERRCODE = 'invalid_parameter_value', HINT = 'It must have at most 256 bytes.';
    END IF;
    DELETE FROM weir.claim_request r WHERE r.pid = pg_backend_pid();
    IF EXISTS (SELECT FROM weir.pool p WHERE p.role = session_user AND p.address = here AND p.seen_at > clock_timestamp() - interval '30 s') THEN
        LOCK TABLE weir.pool IN SHARE ROW EXCLUSIVE MODE; -- until claim commits: one session at a time counts, and then waits
        IF 4 <= (
            SELECT count(*) FROM weir.claim_request r
            WHERE r.role = session_user AND r.address = here AND r.answer IS NULL AND r.seen_at > clock_timestamp() - interval '3 s'
        ) THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO weir.claim_request (queue, most, lease, worker, wait_until)
    VALUES (queue, most, lease, coalesce(worker, ''), clock_timestamp() + wait)
    RETURNING id INTO request;
    PERFORM weir.notify('weir_claim', '');
    RETURN request;
END $$;
