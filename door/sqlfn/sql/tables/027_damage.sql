-- A read returns the records before damage, and then its error.
DO $$ BEGIN
    IF to_regprocedure('weir.pass_over(bigint, bigint, bigint)') IS NOT NULL THEN
        DROP FUNCTION weir.pass_over(bigint, bigint, bigint);
    END IF;
END $$;

INSERT INTO weir.rights (kind, what) VALUES
    ('consumer', 'EXECUTE ON FUNCTION weir.damaged(bigint, bigint, bigint)'),
    ('reader', 'EXECUTE ON FUNCTION weir.damaged(bigint, bigint, bigint)');
