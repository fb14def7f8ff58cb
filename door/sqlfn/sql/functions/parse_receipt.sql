-- parse_receipt returns the fields of a receipt (use/queue/receipt.go), for a function that answers a claim: its statements have to see what was committed before
-- each of them.
CREATE OR REPLACE FUNCTION weir.parse_receipt(receipt text, caller text) RETURNS text[]
LANGUAGE plpgsql STABLE
:pinned
AS $$
DECLARE
    fields text[] := string_to_array(left(receipt, 128), '.');
BEGIN
    IF receipt IS NULL THEN
        RAISE 'receipt is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Use the text that came with the message, as it is.';
    ELSIF receipt !~ '^[0-9a-f]+\.[0-9]+\.[0-9]+\.[0-9]+\.[0-9a-f]+$' -- to count in a pattern, or to have its parts, costs several times as much
       OR (length(fields[1]), length(fields[5])) <> (16, 8) OR length(fields[2]) > 18 OR length(fields[3]) > 18 OR length(fields[4]) > 9 THEN
        RAISE 'receipt "%" is none', left(receipt, 128)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Use the text that came with the message, as it is.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE '% needs a READ COMMITTED transaction, and this one is %', caller, upper(current_setting('transaction_isolation'))
        USING ERRCODE = 'feature_not_supported', HINT = 'A snapshot from before the call does not show whether the message is done.';
    END IF;
    RETURN fields;
END $$;
