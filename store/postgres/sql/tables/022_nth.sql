-- commit is told which of partitions and of keys a batch, a check or a put is of, in place of the partition and the key: nothing is joined.
DO $$ BEGIN
    IF to_regprocedure('weir.commit(bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.commit(bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea);
    END IF;
END $$;
