-- Roles that may read topics and groups may also read queues and their messages (views/queues.sql, views/messages.sql).
INSERT INTO weir.rights (kind, what)
SELECT kind, 'SELECT ON weir.queues, weir.messages' FROM unnest(ARRAY['consumer', 'reader']) AS kind;
