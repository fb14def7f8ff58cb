-- check_lease holds a lease to the rules of queues (use/queue/definition.go).
CREATE OR REPLACE FUNCTION weir.check_lease(lease interval, optional boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    IF lease IS NULL AND NOT optional THEN
        RAISE 'lease is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Say for how long the message is to be kept from others: 100 ms to 12 hours.';
    ELSIF lease < interval '100 ms' OR lease > interval '12 hours' THEN
        RAISE 'lease is %', lease USING ERRCODE = 'invalid_parameter_value', HINT = '100 ms to 12 hours are allowed.';
    END IF;
END $$;
