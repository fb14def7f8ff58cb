-- check_own fails if a topic is reserved for weir (the names of eventlog.InternalTopic), or is a category of streams.
CREATE OR REPLACE FUNCTION weir.check_own(about weir.topic) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF about.name = '__consumer_offsets' OR starts_with(about.name, '__weir_') THEN
        RAISE 'topic "%" is reserved for weir: you cannot publish to it', about.name
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic. To send a message later, use weir.enqueue(queue, value, delay => ...).';
    ELSIF about.event_max < 0 THEN
        RAISE 'topic "%" is a category of streams: you cannot publish to it', about.name
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic, or append to a stream: weir.append.';
    END IF;
END $$;
