-- is_atomic reports whether the text of an error is the one of COMMIT in a transaction block, in any language. COMMIT in a function gives the same text.
CREATE OR REPLACE FUNCTION weir.is_atomic(why text) RETURNS boolean
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    COMMIT;
EXCEPTION WHEN invalid_transaction_termination THEN
    RETURN SQLERRM = why;
END $$;
