-- These functions have new names: notify_mover, json_of_value, damage_hint, time_of, overhead, delete_rows. Only functions of this directory call them,
-- and all of those are installed anew.
DO $$
DECLARE
    old text;
BEGIN
    FOREACH old IN ARRAY ARRAY['weir.stir()', 'weir.told(bytea)', 'weir.pass_over(bigint)', 'weir.moment(bigint)', 'weir.around(jsonb)', 'weir.take(bigint[])'] LOOP
        IF to_regprocedure(old) IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || old;
        END IF;
    END LOOP;
END $$;
