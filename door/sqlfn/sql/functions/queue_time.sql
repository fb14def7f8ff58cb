-- queue_time is the time that work queues use: the server's clock, in milliseconds since 1970 (use/claims/clock.go).
CREATE OR REPLACE FUNCTION weir.queue_time() RETURNS bigint
LANGUAGE plpgsql VOLATILE
:pinned
AS $$
BEGIN
    RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
END $$;
