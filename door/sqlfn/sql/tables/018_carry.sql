-- An older version of carry had no positions to compare with (nexts): a mover that calls it could undo what transactions committed. So it is dropped.
-- An older weir that uses this schema moves no positions until it is replaced.
DO $$
DECLARE
    old regprocedure := to_regprocedure('weir.carry(bigint[], text[], bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], '
        'int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)');
BEGIN
    IF old IS NOT NULL THEN
        EXECUTE format('DROP FUNCTION %s', old);
    END IF;
END $$;
