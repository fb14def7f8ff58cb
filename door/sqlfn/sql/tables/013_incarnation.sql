-- incarnation: as long as this row exists, the server has not crashed since it was written, because PostgreSQL empties unlogged tables after a crash.
-- After a crash, transaction numbers and row ids that were lost are used again, so what a mover remembers of them is no longer true.
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
