-- check_lease checks a lease against the limits of queues (use/queue/definition.go).
CREATE OR REPLACE FUNCTION weir.check_lease(lease interval, optional boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE
:pinned
AS $$
BEGIN
    IF lease IS NULL AND NOT optional THEN
        RAISE 'lease is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'Give the time for which no other worker gets the message: 100 ms to 12 hours.';
    ELSIF lease < interval '100 ms' OR lease > interval '12 hours' THEN
        RAISE 'lease is %', lease USING ERRCODE = 'invalid_parameter_value', HINT = 'It must be from 100 ms to 12 hours.';
    END IF;
END $$;
