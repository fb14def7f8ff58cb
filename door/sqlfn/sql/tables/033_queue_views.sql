-- Who reads topics and groups sees queues and their messages, too (views/queues.sql, views/messages.sql).
INSERT INTO weir.rights (kind, what)
SELECT kind, 'SELECT ON weir.queues, weir.messages' FROM unnest(ARRAY['consumer', 'reader']) AS kind;
