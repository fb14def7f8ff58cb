-- list also returns the server's time: its return type changes, so the old function is dropped.
DO $$ BEGIN
    IF to_regprocedure('weir.list(text, text, text, int)') IS NOT NULL THEN
        DROP FUNCTION weir.list(text, text, text, int);
    END IF;
END $$;
