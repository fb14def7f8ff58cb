-- queue_time is the time by which work queues judge, in milliseconds since 1970: the value and the age of one key (use/queue/clock.go). Before that key
-- is there, any clock will do.
CREATE OR REPLACE FUNCTION weir.queue_time() RETURNS bigint
LANGUAGE plpgsql VOLATILE
:by_index
AS $$
DECLARE
    time numeric;
BEGIN
    SELECT convert_from(s.value, 'UTF8')::bigint + extract(epoch FROM clock_timestamp() - s.put_at) * 1000
    INTO time FROM weir.newest_state('queue/clock') AS s;
    RETURN coalesce(time, extract(epoch FROM clock_timestamp()) * 1000);
END $$;
