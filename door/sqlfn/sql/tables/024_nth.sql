-- move and carry get the same new argument as commit.
DO $$ BEGIN
    IF to_regprocedure('weir.move(bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.move(bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea);
    END IF;
    IF to_regprocedure('weir.carry(bigint[], text[], bigint[], bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.carry(bigint[], text[], bigint[], bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea);
    END IF;
END $$;
