-- end_claim is what weir.ack and weir.nack share: the receipt's message is done, or is given back (nack, the receipt; else NULL), if the transaction commits. Refused
-- with WE008 where the claim is over.
--
-- The row in weir.acked comes first, and behind it the queue's state is read: the mover writes that before it deletes the row. So of two transactions the
-- second waits for the first, and then finds its row or what became of it.
--
-- A nack that was too late, as the message was claimed again before the mover came, is in nobody's way: whoever has the message now takes its row.
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
            RAISE 'the message is done or was given back: another transaction, or this one, answered for it'
            USING ERRCODE = 'WE008', HINT = 'Roll back: the message is not this session''s any more.';
        END IF; -- else its row went just now
    END LOOP;
    PERFORM weir.check_claimed(fields);
END $$;
