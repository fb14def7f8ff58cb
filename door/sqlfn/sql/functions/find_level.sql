-- find_level returns the topic of a work queue's messages of one priority.
CREATE OR REPLACE FUNCTION weir.find_level(queue text, definition json, priority int) RETURNS weir.topic
LANGUAGE plpgsql STABLE
:by_index
AS $$
DECLARE
    about weir.topic;
BEGIN
    SELECT * INTO about FROM weir.topic t
    WHERE t.name = CASE priority WHEN 0 THEN definition ->> 'topic' ELSE format('%s.p%s', queue, priority) END
      AND t.id = (CASE priority WHEN 0 THEN definition ->> 'topic_id' ELSE definition -> 'levels' ->> (priority - 1) END)::uuid;
    IF NOT FOUND THEN -- perhaps a waiting request will create it
        SELECT * INTO about FROM weir.find_reserved(CASE priority WHEN 0 THEN definition ->> 'topic' ELSE format('%s.p%s', queue, priority) END) WHERE NOT definition ::jsonb ? 'id';
    END IF;
    IF about.id IS NULL THEN
        RAISE 'a topic of queue "%" was deleted', queue USING ERRCODE = 'WE001', HINT = 'Delete the queue, and create it again.';
    END IF;
    PERFORM weir.check_own(about);
    RETURN about;
END $$;
