-- claim_request has the claims of sessions (functions/claim.sql): a session adds a request, a mover claims messages and writes the answer into the row,
-- and the session deletes it. A claim is durable in its queue's state before its answer is written here. The table is unlogged, because after a crash no session exists any more.
CREATE UNLOGGED TABLE weir.claim_request (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pid         int         NOT NULL DEFAULT pg_backend_pid(), -- the session
    role        name        NOT NULL DEFAULT session_user,
    queue       text        NOT NULL,
    most        int         NOT NULL,
    lease       interval,             -- NULL: the queue's setting
    worker      text        NOT NULL,
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    wait_until  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(), -- when its session last looked
    taken_by    text,                                           -- a mover; NULL: none yet
    taken_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '5 s', -- from then on another mover may take it
    answer      jsonb                 -- an array of messages, or an object that says what is wrong
) WITH (
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

INSERT INTO weir.rights (kind, what) VALUES
    ('consumer', 'EXECUTE ON PROCEDURE weir.claim(text, int, interval, interval, text, jsonb)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.request_claim(text, int, interval, interval, text)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.read_claim(bigint)'),
    ('consumer', 'EXECUTE ON FUNCTION weir.is_atomic(text)');
