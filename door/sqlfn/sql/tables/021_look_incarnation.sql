-- look returns the store's incarnation; move and carry are refused in any other (functions/unchanged.sql). An older weir that uses this schema
-- still finds all the columns that it reads.
DO $$
BEGIN
    IF to_regproc('weir.look') IS NOT NULL THEN
        DROP FUNCTION weir.look; -- it returned fewer columns
    END IF;
END $$;
