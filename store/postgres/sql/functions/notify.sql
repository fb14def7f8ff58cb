-- notify notifies a channel when the transaction commits, unless half of the server's notification queue is used. All notifications of weir go through
-- it. A session that listens, and stays in a transaction, keeps the server from emptying the queue. Once the queue is full, no transaction that has notified can
-- commit. Whoever is not notified finds what is new with its next poll.
CREATE OR REPLACE FUNCTION weir.notify(channel text, payload text) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(channel, payload);
    END IF;
END $$;
