-- commit_durably does the same as durably, but when the transaction commits, so that later SET commands do not matter. Deferred triggers run before COMMIT reads the
-- setting (CommitTransaction in PostgreSQL's xact.c).
CREATE OR REPLACE FUNCTION weir.commit_durably() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
:pinned
AS $$
BEGIN
    PERFORM weir.durably();
    RETURN NULL;
END $$;
