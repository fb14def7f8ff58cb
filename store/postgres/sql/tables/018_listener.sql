-- listener has a row for each store value that listens, so that others know whether anyone would receive a notification. A row is valid for a few
-- minutes: its store renews it in time, and deletes it when it ends. Unlogged: after a crash of the server all stores connect again.
CREATE UNLOGGED TABLE weir.listener (
    nonce    text        PRIMARY KEY,
    heard_at timestamptz NOT NULL
);
