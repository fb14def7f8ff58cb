-- end_claim does what weir.ack and weir.nack share: if the transaction commits, the message of the receipt is done, or given back (then nack is the receipt; otherwise NULL).
-- It fails with WE008 if the claim is over.
--
-- It inserts the row in weir.acked first, and then reads the queue's state; the mover writes the state before it deletes the row. So of two transactions the
-- second waits for the first, and then sees its row, or its effect on the state.
--
-- A nack can be too late, because the message was claimed again before the mover applied it. That does no harm: an ack or nack of the later claim takes over its row.
CREATE OR REPLACE FUNCTION weir.end_claim(fields text[], receipt text, nack text) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    p bigint := fields[2];
    o bigint := fields[3];
BEGIN
    PERFORM weir.durably();
    LOOP
        INSERT INTO weir.acked (queue, partition, "offset") VALUES (fields[1], p, o) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            INSERT INTO weir.nacked (queue, partition, "offset", receipt) SELECT fields[1], p, o, nack WHERE nack IS NOT NULL;
            EXIT;
        END IF;
        IF nack IS NULL THEN
            DELETE FROM weir.nacked n WHERE n.queue = fields[1] AND n.partition = p AND n."offset" = o AND n.receipt <> end_claim.receipt;
        ELSE
            UPDATE weir.nacked n SET receipt = nack WHERE n.queue = fields[1] AND n.partition = p AND n."offset" = o AND n.receipt <> end_claim.receipt;
        END IF;
        EXIT WHEN FOUND;
        IF weir.is_answered(fields, receipt) THEN
            RAISE 'the message was already acknowledged or given back, by this or another transaction'
            USING ERRCODE = 'WE008', HINT = 'Roll back: this session no longer has the message.';
        END IF; -- otherwise its row was just deleted
    END LOOP;
    PERFORM weir.check_claimed(fields);
END $$;
