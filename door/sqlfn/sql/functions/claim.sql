-- claim claims messages of a work queue, for a worker that has only SQL: CALL weir.claim('mail', 10).
-- It commits, so call it outside a transaction. It returns a JSON array of messages; acknowledge
-- each with weir.ack(receipt).
--
-- A claim must be durable before the worker gets it, and a session cannot change the queue's state without blocking weir. So claim adds a request, commits it, and waits for the answer of a running weir (door/sqlfn/claim.go).
--
-- A procedure that commits can have neither SECURITY DEFINER nor settings. So it runs with the rights of its caller, and leaves the work to other functions.
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
        COMMIT; -- a block with EXCEPTION cannot commit; the error shows why
    EXCEPTION WHEN invalid_transaction_termination THEN
        IF weir.is_atomic(SQLERRM) THEN
            RAISE 'weir.claim cannot be called inside a transaction' USING ERRCODE = 'active_sql_transaction',
            HINT = 'CALL it outside a transaction: the claim is committed before you get its messages. Then BEGIN, handle them, call weir.ack, COMMIT.';
        END IF;
    END;
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- CHAIN keeps it: otherwise movers, which write to the request, too, could make read_claim fail
    -- A server asks whether the client is still there only in statements that begin while this setting is on (start_xact_command in PostgreSQL's postgres.c). So
    -- this changes nothing for the first call of a session that waits, and ends every later one within seconds if its client dies. Otherwise it would wait to its
    -- end, hold a connection, and take a message that nobody gets.
    IF wait > interval '0' AND pg_catalog.current_setting('client_connection_check_interval') = '0' THEN
        BEGIN
            PERFORM pg_catalog.set_config('client_connection_check_interval', '2s', false);
        EXCEPTION WHEN invalid_parameter_value THEN -- the server's operating system cannot tell
        END;
    END IF;
    request := weir.request_claim(queue, most, lease, wait, worker);
    COMMIT AND CHAIN;
    IF request IS NULL THEN
        PERFORM pg_catalog.pg_sleep(0.02); -- so that a worker in a loop does not keep the server busy
        messages := '[]';
        RETURN;
    END IF;
    LOOP
        SELECT * INTO answer FROM weir.read_claim(request);
        COMMIT AND CHAIN; -- so that the snapshot does not block vacuum
        EXIT WHEN answer.pause IS NULL;
        PERFORM pg_catalog.pg_sleep(answer.pause);
    END LOOP;
    IF answer.code IS NOT NULL THEN
        RAISE '%', answer.message USING ERRCODE = answer.code, HINT = answer.hint;
    END IF;
    messages := answer.messages;
END $$;
