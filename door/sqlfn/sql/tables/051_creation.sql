-- creation has what sessions asked weir to create (functions/create_topic.sql and its siblings), in their own transactions. A change of a topic locks the catalog, so a session does not
-- make it: each request is also a row of the inbox, and the mover carries it out, before it moves what was published after it.
CREATE TABLE weir.creation (
    id       bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text             NOT NULL, -- topic, queue or category
    name     text COLLATE "C" NOT NULL,
    spec     jsonb            NOT NULL, -- what was asked for (door/sqlfn/create.go)
    state    text             NOT NULL DEFAULT 'waiting', -- done, refused
    reason   text,                      -- why it was refused
    role     name             NOT NULL DEFAULT session_user,
    asked_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    done_at  timestamptz
);

CREATE INDEX creation_name ON weir.creation (kind, name);

-- reserved has an id for each topic that a waiting creation will make: rows of the inbox that are for such a topic have this id. The topic gets another id when it is made, and the mover
-- finds it by its name.
CREATE TABLE weir.reserved (
    id         uuid             PRIMARY KEY DEFAULT gen_random_uuid(),
    creation   bigint           NOT NULL,
    name       text COLLATE "C" NOT NULL,
    event_max  int              NOT NULL, -- as in weir.topic
    partitions int              NOT NULL, -- how many
    settings   jsonb            NOT NULL
);

CREATE INDEX reserved_name ON weir.reserved (name);

-- A mover of a version that knows no creations would drop their rows, as rows of a deleted topic: it must not look.
DO $$ BEGIN
    IF to_regprocedure('weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint, bigint, uuid[], uuid[])') IS NOT NULL THEN
        DROP FUNCTION weir.look(pg_snapshot, bigint, pg_snapshot, bigint, int, bigint, bigint, uuid[], uuid[]);
    END IF;
END $$;

INSERT INTO weir.rights (kind, what) VALUES
    ('creator', 'USAGE ON SCHEMA weir'),
    ('creator', 'EXECUTE ON FUNCTION weir.create_topic(text, int, jsonb)'),
    ('creator', 'EXECUTE ON FUNCTION weir.create_queue(text, text, int, jsonb)'),
    ('creator', 'EXECUTE ON FUNCTION weir.create_category(text, int, jsonb)');

INSERT INTO weir.rights (kind, what)
SELECT kind, 'SELECT ON weir.creations' FROM unnest(ARRAY['creator', 'consumer', 'reader']) AS kind;
