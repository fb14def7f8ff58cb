-- check_own takes the row of weir.topic, and no longer the name.
DO $$ BEGIN
    IF to_regprocedure('weir.check_own(text)') IS NOT NULL THEN
        DROP FUNCTION weir.check_own(text);
    END IF;
END $$;
