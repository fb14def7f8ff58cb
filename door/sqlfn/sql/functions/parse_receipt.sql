-- parse_receipt returns the fields of a receipt (use/queue/receipt.go). It refuses transactions that are not READ COMMITTED: the statements of its caller must see what was
-- committed before each of them.
CREATE OR REPLACE FUNCTION weir.parse_receipt(receipt text, caller text) RETURNS text[]
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    fields text[] := string_to_array(left(receipt, 128), '.');
BEGIN
    IF receipt IS NULL THEN
        RAISE 'receipt is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Use the receipt that came with the message, unchanged.';
    ELSIF receipt !~ '^[0-9a-f]+[.][0-9]+[.][0-9]+[.][0-9]+[.][0-9a-f]+$' -- a pattern that counts digits or captures parts costs several times as much
       OR (length(fields[1]), length(fields[5])) <> (16, 8) OR length(fields[2]) > 18 OR length(fields[3]) > 18 OR length(fields[4]) > 9 THEN
        RAISE '"%" is not a receipt', left(receipt, 128)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the receipt that came with the message, unchanged.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE '% needs a READ COMMITTED transaction, but this one is %', caller, upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'feature_not_supported', HINT = 'The snapshot of such a transaction can be older than the call, and then does not show whether the message is done.';
    END IF;
    RETURN fields;
END $$;
