-- ack acknowledges the message of a receipt, if the transaction commits: the session's work and the ack are committed together, or not at all. The receipt may come from
-- a claim in SQL, over HTTP or in Go. ack fails with WE008 if the claim is over: the message is done, was given back, or was claimed again.
CREATE OR REPLACE FUNCTION weir.ack(receipt text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM weir.end_claim(weir.parse_receipt(receipt, 'weir.ack'), receipt, NULL);
    PERFORM weir.post_answer(jsonb_build_object('ack', receipt));
END $$;
