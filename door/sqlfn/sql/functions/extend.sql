-- extend extends the lease of a receipt's claim, if the transaction commits: the lease then ends this long after the mover has read the
-- request. extend fails with WE008 if the claim is over, or a committed transaction acknowledged the message or gave it back.
CREATE OR REPLACE FUNCTION weir.extend(receipt text, lease interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    fields text[] := weir.parse_receipt(receipt, 'weir.extend');
BEGIN
    PERFORM weir.check_lease(lease, false);
    PERFORM weir.check_claimed(fields);
    IF weir.is_answered(fields, receipt) THEN
        RAISE 'the message was already acknowledged or given back, by this or another transaction' USING ERRCODE = 'WE008';
    END IF;
    PERFORM weir.post_answer(jsonb_build_object('extend', receipt, 'lease', (extract(epoch FROM lease) * 1000)::bigint));
END $$;
