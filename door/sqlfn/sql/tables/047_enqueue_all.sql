-- Rights of sessions that publish: enqueue many messages in one call.
INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue_all(text, anycompatiblearray, anyarray, jsonb)');
