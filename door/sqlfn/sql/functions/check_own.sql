-- check_own refuses to publish to a topic that is weir's own (these names are eventlog.InternalTopic's), or that one of its uses alone appends to.
CREATE OR REPLACE FUNCTION weir.check_own(about weir.topic) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF about.name = '__consumer_offsets' OR starts_with(about.name, '__weir_') THEN
        RAISE 'topic "%" is weir''s own: nothing can be published to it', about.name
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic. A message for later: weir.enqueue(queue, value, delay => ...).';
    ELSIF about.event_max < 0 THEN
        RAISE 'topic "%" is a category of streams: nothing can be published to it', about.name
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic, or append to a stream: over HTTP or in Go.';
    END IF;
END $$;
