-- is_atomic reports whether the text of an error is the one of COMMIT in a transaction block, in whatever language. A function gets the same.
CREATE OR REPLACE FUNCTION weir.is_atomic(why text) RETURNS boolean
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    COMMIT;
EXCEPTION WHEN invalid_transaction_termination THEN
    RETURN SQLERRM = why;
END $$;
