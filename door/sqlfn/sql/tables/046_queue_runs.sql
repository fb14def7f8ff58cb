-- The runs of a queue's state are a text (functions/queue_runs.sql).
-- Replaces views/queue_parts.sql
-- Replaces views/queues.sql
-- Replaces views/messages.sql
INSERT INTO weir.rights (kind, what)
SELECT kind, 'EXECUTE ON FUNCTION weir.queue_runs(bigint, json, json)' FROM unnest(ARRAY['consumer', 'reader']) AS kind;
