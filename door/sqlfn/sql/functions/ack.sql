-- ack acknowledges the message of a receipt, if the transaction commits: what it did with the message and that the message is done are one. The receipt is that of
-- a claim, by whichever door. It is refused with WE008 where the claim is over: the message is done, or was claimed again.
CREATE OR REPLACE FUNCTION weir.ack(receipt text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM weir.end_claim(weir.parse_receipt(receipt, 'weir.ack'), receipt, NULL);
    PERFORM weir.post_answer(jsonb_build_object('ack', receipt));
END $$;
