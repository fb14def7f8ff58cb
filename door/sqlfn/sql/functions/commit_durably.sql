-- commit_durably does what durably does when the transaction commits, whatever it set after the call. Deferred triggers run before COMMIT looks at the
-- setting (CommitTransaction in PostgreSQL's xact.c).
CREATE OR REPLACE FUNCTION weir.commit_durably() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
BEGIN
    PERFORM weir.durably();
    RETURN NULL;
END $$;
