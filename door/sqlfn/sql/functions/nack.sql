-- nack gives the message of a receipt back, if the transaction commits: it comes again after delay (NULL: the queue's own pause), or with reject becomes a dead letter
-- now, as after its last attempt. Refused with WE008 where the claim is over.
CREATE OR REPLACE FUNCTION weir.nack(receipt text, error text DEFAULT NULL, delay interval DEFAULT NULL, reject boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    fields  text[] := weir.parse_receipt(receipt, 'weir.nack');
    century CONSTANT bigint := 100 * 365 * 86400000::bigint;
BEGIN
    IF reject IS NULL THEN
        RAISE 'reject is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'true makes the message a dead letter; leave it out if not.';
    ELSIF reject AND delay IS NOT NULL THEN
        RAISE 'reject and delay are both given' USING ERRCODE = 'invalid_parameter_value', HINT = 'A message that is rejected does not come again.';
    ELSIF delay < interval '0' OR extract(epoch FROM delay) * 1000 > century THEN
        RAISE 'delay is %', delay USING ERRCODE = 'invalid_parameter_value', HINT = 'It is at least 0 and at most 100 years of 365 days.';
    END IF;
    PERFORM weir.end_claim(fields, receipt, receipt);
    PERFORM weir.post_answer(jsonb_build_object(
        'nack', receipt, 'error', left(error, 4096), 'delay', ceil(extract(epoch FROM delay) * 1000)::bigint, 'reject', reject));
END $$;
