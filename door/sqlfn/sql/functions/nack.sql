-- nack gives the message of a receipt back, if the transaction commits: it comes again after delay (NULL: the pause from the queue's settings). With reject it becomes a dead letter
-- immediately, as after its last attempt. It fails with WE008 if the claim is over.
CREATE OR REPLACE FUNCTION weir.nack(receipt text, error text DEFAULT NULL, delay interval DEFAULT NULL, reject boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    fields  text[] := weir.parse_receipt(receipt, 'weir.nack');
    century CONSTANT bigint := 100 * 365 * 86400000::bigint;
BEGIN
    IF reject IS NULL THEN
        RAISE 'reject is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give true to make the message a dead letter; otherwise leave it out.';
    ELSIF reject AND delay IS NOT NULL THEN
        RAISE 'reject and delay are both given' USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one of them: a rejected message does not come again.';
    ELSIF delay < interval '0' OR extract(epoch FROM delay) * 1000 > century THEN
        RAISE 'delay is %', delay USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 0 to 100 years of 365 days.';
    END IF;
    PERFORM weir.end_claim(fields, receipt, receipt);
    PERFORM weir.post_answer(jsonb_build_object(
        'nack', receipt, 'error', left(error, 4096), 'delay', ceil(extract(epoch FROM delay) * 1000)::bigint, 'reject', reject));
END $$;
