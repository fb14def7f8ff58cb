-- listener has a row for each store value that listens, so that others know whether a notification would be heard. A row holds for a few minutes:
-- its store writes it again before, and takes it back when it ends. Unlogged: after a crash of the server all of them connect again.
CREATE UNLOGGED TABLE weir.listener (
    nonce    text        PRIMARY KEY,
    heard_at timestamptz NOT NULL
);
