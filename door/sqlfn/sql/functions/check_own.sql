-- check_own refuses to write to a topic that is weir's own: these names are eventlog.InternalTopic's.
CREATE OR REPLACE FUNCTION weir.check_own(topic text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF topic = '__consumer_offsets' OR starts_with(topic, '__weir_') THEN
        RAISE 'topic "%" is weir''s own: nothing can be published to it', topic
        USING ERRCODE = 'WE009', HINT = 'Publish to another topic. A message for later: weir.enqueue(queue, value, delay => ...).';
    END IF;
END $$;
