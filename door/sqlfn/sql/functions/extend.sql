-- extend makes the lease of a receipt's claim end so long after the mover has heard of it, which is when the transaction has committed. Refused with WE008 where the
-- claim is over, or where a transaction that committed answered it.
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
        RAISE 'the message is done or was given back: another transaction, or this one, answered for it' USING ERRCODE = 'WE008';
    END IF;
    PERFORM weir.post_answer(jsonb_build_object('extend', receipt, 'lease', (extract(epoch FROM lease) * 1000)::bigint));
END $$;
