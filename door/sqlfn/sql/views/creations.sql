-- creations has a row for each topic, queue and category that weir.create_topic, weir.create_queue or weir.create_category asked for: it is waiting for a running weir, done, or refused for
-- a reason.
CREATE OR REPLACE VIEW weir.creations AS
SELECT c.id, c.kind, c.name, c.state, c.reason, c.role, c.asked_at, c.done_at
FROM weir.creation c;
