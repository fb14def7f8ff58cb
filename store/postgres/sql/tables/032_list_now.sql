-- list tells the server's time.
DO $$ BEGIN
    IF to_regprocedure('weir.list(text, text, text, int)') IS NOT NULL THEN
        DROP FUNCTION weir.list(text, text, text, int);
    END IF;
END $$;
