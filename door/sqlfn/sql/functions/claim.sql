-- claim claims messages of a work queue, for a worker that has only SQL: CALL weir.claim('mail', 10). A claim has to be durable before the worker has it, and a session
-- cannot change the queue's state without holding up weir. So this adds a request, commits it, and waits for the answer of a running weir (door/sqlfn/claim.go).
--
-- A procedure that commits can have neither SECURITY DEFINER nor settings. So it runs as its caller, and does nothing itself.
CREATE OR REPLACE PROCEDURE weir.claim(
    queue text, most int DEFAULT 1, lease interval DEFAULT NULL, wait interval DEFAULT '0', worker text DEFAULT NULL, INOUT messages jsonb DEFAULT NULL
)
LANGUAGE plpgsql
AS $$
DECLARE
    request bigint;
    answer  record;
BEGIN
    BEGIN
        COMMIT; -- a block with an exception cannot, so this only tells why
    EXCEPTION WHEN invalid_transaction_termination THEN
        IF weir.is_atomic(SQLERRM) THEN
            RAISE 'weir.claim cannot be called inside of a transaction' USING ERRCODE = 'active_sql_transaction',
            HINT = 'CALL it by itself: a claim is committed before you get its messages. Then BEGIN, handle them, call weir.ack, COMMIT.';
        END IF;
    END;
    request := weir.request_claim(queue, most, lease, wait, worker);
    COMMIT;
    LOOP
        SELECT * INTO answer FROM weir.read_claim(request);
        COMMIT; -- which also lets vacuum go on
        EXIT WHEN answer.pause IS NULL;
        PERFORM pg_catalog.pg_sleep(answer.pause);
    END LOOP;
    IF answer.code IS NOT NULL THEN
        RAISE '%', answer.message USING ERRCODE = answer.code, HINT = answer.hint;
    END IF;
    messages := answer.messages;
END $$;
