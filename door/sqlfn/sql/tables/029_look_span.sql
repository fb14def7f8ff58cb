-- look reads a bounded part of the inbox, and returns how far it read.
DO $$ BEGIN
    IF to_regprocedure('weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint)') IS NOT NULL THEN
        DROP FUNCTION weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint);
    END IF;
    IF to_regprocedure('weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint, uuid[], uuid[])') IS NOT NULL THEN
        DROP FUNCTION weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint, uuid[], uuid[]);
    END IF;
END $$;
