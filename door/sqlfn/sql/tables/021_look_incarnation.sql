-- A look tells in which incarnation the store is, and a move or a carry is refused in another (functions/unchanged.sql). An older weir beside this schema
-- finds all the columns that it asks for.
DO $$
BEGIN
    IF to_regproc('weir.look') IS NOT NULL THEN
        DROP FUNCTION weir.look; -- it returned fewer columns
    END IF;
END $$;
