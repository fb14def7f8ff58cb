-- incarnation says that the server lost nothing since this row was written: after a crash PostgreSQL empties unlogged tables. Numbers of
-- transactions and ids of rows that were lost in a crash are given out again, and what a mover remembered of them is not true any more.
CREATE UNLOGGED TABLE weir.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid    NOT NULL DEFAULT gen_random_uuid()
);

DO $$
BEGIN
    IF to_regproc('weir.look') IS NOT NULL THEN
        DROP FUNCTION weir.look; -- it returned other columns
    END IF;
END $$;
