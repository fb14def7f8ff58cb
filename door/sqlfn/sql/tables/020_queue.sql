-- Rights of sessions that publish: enqueue messages into work queues.
INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue(text, text, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue(text, jsonb, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue(text, bytea, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.post_message(text, bytea, bytea, jsonb, interval, timestamptz, int, text)');
