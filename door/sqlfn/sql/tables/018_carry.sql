-- carry used to have no positions to compare with (nexts): a mover that calls it so would take back what transactions committed.
-- An older weir beside this schema carries no positions until it is restarted.
DO $$
DECLARE
    old regprocedure := to_regprocedure('weir.carry(bigint[], text[], bigint[], bigint[], text[], int[], bigint[], int[], bigint[], int[], int[], '
        'int[], text[], bigint[], int[], text[], bigint[], int[], int[], int[], bytea)');
BEGIN
    IF old IS NOT NULL THEN
        EXECUTE format('DROP FUNCTION %s', old);
    END IF;
END $$;
