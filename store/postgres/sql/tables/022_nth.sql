-- A batch, a check or a put gives commit the index of its partition or key in the lists, not the partition or the key itself: nothing is joined.
DO $$ BEGIN
    IF to_regprocedure('weir.commit(bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.commit(bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea);
    END IF;
END $$;
