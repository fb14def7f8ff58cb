-- post_answer puts an ack, nack or extension into the inbox. The mover applies it to the queue.
CREATE OR REPLACE FUNCTION weir.post_answer(answer jsonb) RETURNS void
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    me xid8 := pg_current_xact_id(); -- before the row's id, see weir.look
BEGIN
    INSERT INTO weir.inbox (xact, topic, headers, size)
    VALUES (me, '00000000-0000-0000-0000-000000000000', jsonb_build_object('weir.queue', jsonb_strip_nulls(answer)), 200 + octet_length(answer::text));
    PERFORM weir.notify_mover();
END $$;
