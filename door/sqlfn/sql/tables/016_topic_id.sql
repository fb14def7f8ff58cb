-- A topic is found by its id as well: weir.commit_offset_by_id.
CREATE INDEX topic_id ON weir.topic (id);

INSERT INTO weir.rights (kind, what) VALUES
    ('consumer', 'EXECUTE ON FUNCTION weir.commit_offset_by_id(text, uuid, int, bigint, bigint, text, int)');
