-- These functions have new names: notify_mover, json_of_value, damage_hint, time_of, overhead, delete_rows. Only functions of this directory call them,
-- and all of those are installed anew.
DO $$ BEGIN
    IF to_regprocedure('weir.stir()') IS NOT NULL THEN
        DROP FUNCTION weir.stir();
    END IF;
    IF to_regprocedure('weir.told(bytea)') IS NOT NULL THEN
        DROP FUNCTION weir.told(bytea);
    END IF;
    IF to_regprocedure('weir.pass_over(bigint)') IS NOT NULL THEN
        DROP FUNCTION weir.pass_over(bigint);
    END IF;
    IF to_regprocedure('weir.moment(bigint)') IS NOT NULL THEN
        DROP FUNCTION weir.moment(bigint);
    END IF;
    IF to_regprocedure('weir.around(jsonb)') IS NOT NULL THEN
        DROP FUNCTION weir.around(jsonb);
    END IF;
    IF to_regprocedure('weir.take(bigint[])') IS NOT NULL THEN
        DROP FUNCTION weir.take(bigint[]);
    END IF;
END $$;
