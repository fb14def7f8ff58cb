-- appended has the events that sessions appended to streams (functions/append.sql) and no mover has carried yet.
-- Versions below the one in the stream's head are carried, and nobody reads them here: so, as in weir.held, deleted rows are never read.
CREATE TABLE weir.appended (
    key      text COLLATE "C" NOT NULL, -- that of the stream's head
    version  bigint           NOT NULL, -- of the event
    head     bigint           NOT NULL, -- the version of the key after the call that appended the event, as in weir.held
    id       text             NOT NULL,
    type     text             NOT NULL,
    data     bytea            NOT NULL,
    metadata jsonb,                     -- NULL: none
    "time"   timestamptz      NOT NULL, -- in milliseconds
    PRIMARY KEY (key, version)
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);

-- stream_event is a row of weir.stream.
CREATE TYPE weir.stream_event AS (
    version   bigint,
    id        text,
    type      text,
    "time"    timestamptz,
    data      bytea,  -- NULL if the event is about a subject: then it is encrypted
    data_text text,   -- NULL if data is not UTF-8, or has a zero byte
    metadata  jsonb,  -- see weir.headers
    subject   text,
    tags      text[]
);

INSERT INTO weir.rights (kind, what) VALUES
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, bigint, text, text, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, bigint, text, jsonb, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, bigint, text, bytea, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, text, text, text, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, text, text, jsonb, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append(text, text, text, text, bytea, jsonb, text, timestamptz)'),
    ('producer', 'EXECUTE ON FUNCTION weir.append_all(text, text, bigint, text[], anyarray, jsonb[], text[], timestamptz[])'),
    ('producer', 'EXECUTE ON FUNCTION weir.append_all(text, text, text, text[], anyarray, jsonb[], text[], timestamptz[])'),
    ('producer', 'EXECUTE ON FUNCTION weir.append_events(text, text, text, text[], bytea[], jsonb[], text[], timestamptz[])');

INSERT INTO weir.rights (kind, what)
SELECT kind, 'EXECUTE ON FUNCTION weir.stream(text, text, bigint, bigint, timestamptz, text[], boolean, bigint), weir.state_at(text, text, timestamptz)'
FROM unnest(ARRAY['consumer', 'reader']) AS kind;
