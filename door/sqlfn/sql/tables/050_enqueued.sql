-- enqueued says where messages are that weir.enqueue_id and weir.enqueue_all_ids put into the
-- inbox: the message whose id is in the column first is at "offset" of the partition, the next one
-- at the next offset, and so on up to the id in last. A move writes a row for each such run, in the
-- transaction that deletes the messages from the inbox (functions/note_enqueued.sql). While a
-- message is in the inbox it has no row here. The inbox marks these messages: their base is not
-- NULL.
CREATE TABLE weir.enqueued (
    first      bigint      PRIMARY KEY, -- weir.inbox.id
    last       bigint      NOT NULL,
    partition  bigint      NOT NULL,    -- in weir.partition
    "offset"   bigint      NOT NULL,
    kept_until timestamptz NOT NULL     -- the row stays until then, also if the records were deleted (functions/forget_enqueued.sql)
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Only functions of this directory call these; they now have one more parameter.
DO $$ BEGIN
    IF to_regprocedure('weir.post_all(weir.topic, anycompatiblearray, anyarray, jsonb)') IS NOT NULL THEN
        DROP FUNCTION weir.post_all(weir.topic, anycompatiblearray, anyarray, jsonb);
    END IF;
    IF to_regprocedure('weir.post_unusual_message(text, json, bytea, bytea, jsonb, interval, timestamptz, int, text, xid8)') IS NOT NULL THEN
        DROP FUNCTION weir.post_unusual_message(text, json, bytea, bytea, jsonb, interval, timestamptz, int, text, xid8);
    END IF;
END $$;

INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue_id(text, text, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue_id(text, jsonb, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue_id(text, bytea, text, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.post_message_id(text, bytea, bytea, jsonb, interval, timestamptz, int, text)'),
    ('producer', 'EXECUTE ON FUNCTION weir.enqueue_all_ids(text, anycompatiblearray, anyarray, jsonb)');

INSERT INTO weir.rights (kind, what)
SELECT kind, 'EXECUTE ON FUNCTION weir.message_state(text, bigint)' FROM unnest(ARRAY['producer', 'consumer', 'reader']) AS kind;
