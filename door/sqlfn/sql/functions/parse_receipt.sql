-- parse_receipt returns the fields of a receipt (use/queue/receipt.go), for a function that answers a claim: its statements have to see what was committed before
-- each of them.
CREATE OR REPLACE FUNCTION weir.parse_receipt(receipt text, caller text) RETURNS text[]
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    fields text[] := regexp_match(receipt, '^([0-9a-f]{16})\.(\d{1,18})\.(\d{1,18})\.(\d{1,9})\.([0-9a-f]{8})$');
BEGIN
    IF receipt IS NULL THEN
        RAISE 'receipt is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Use the text that came with the message, as it is.';
    ELSIF fields IS NULL THEN
        RAISE 'receipt "%" is none', left(receipt, 128)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the text that came with the message, as it is.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE '% needs a READ COMMITTED transaction, and this one is %', caller, upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'feature_not_supported', HINT = 'A snapshot from before the call does not show whether the message is done.';
    END IF;
    RETURN fields;
END $$;
