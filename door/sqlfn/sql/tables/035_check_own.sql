-- The argument of check_own is now a row of weir.topic, and no longer a name.
DO $$ BEGIN
    IF to_regprocedure('weir.check_own(text)') IS NOT NULL THEN
        DROP FUNCTION weir.check_own(text);
    END IF;
END $$;
