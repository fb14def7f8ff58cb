-- Rights of roles. Sessions that publish, consume or read need EXECUTE on a few functions, and no right to any table. PUBLIC has no rights.

-- rights lists the rights of each kind of role. A later migration that adds a function for sessions adds rows here.
CREATE TABLE weir.rights (
    kind text NOT NULL, -- producer, consumer, reader, creator
    what text NOT NULL, -- as in GRANT
    PRIMARY KEY (kind, what)
);

INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'USAGE ON SCHEMA weir'),
    ('producer', 'EXECUTE ON FUNCTION weir.post(text, bytea, bytea, jsonb, int, boolean)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, text, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, jsonb, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, text, bytea, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish(text, bytea, bytea, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.publish_all(text, anycompatiblearray, anyarray, jsonb)'),
    ('producer', 'EXECUTE ON FUNCTION weir.tombstone(text, text, jsonb, int)'),
    ('producer', 'EXECUTE ON FUNCTION weir.tombstone(text, bytea, jsonb, int)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.commit_offset(text, text, int, bigint, bigint, text, int)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.position(text, text, int)');

-- Consumers may also read. Functions in a view run with the rights of the role that reads the view.
INSERT INTO weir.rights (kind, what)
SELECT kind, what
FROM unnest(ARRAY['consumer', 'reader']) AS kind, unnest(ARRAY[
    'USAGE ON SCHEMA weir',
    'SELECT ON weir.topics, weir.partitions, weir.groups',
    'EXECUTE ON FUNCTION weir.unescaped(text), weir.text_of(bytea), weir.assigned(jsonb)',
    'EXECUTE ON FUNCTION weir.events(text, bigint, int, bigint), weir.last_events(text, bigint, int)',
    'EXECUTE ON FUNCTION weir.topic_spans(text, int, bigint, bigint, boolean), weir.span_events(int, bigint, bigint, bigint)',
    'EXECUTE ON FUNCTION weir.decode(bigint, bigint, bigint), weir.stretch(bigint, bigint, bigint)'
]) AS what;
