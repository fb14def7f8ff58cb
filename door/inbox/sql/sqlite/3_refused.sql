-- Events that can never be moved into the log, and why: their topic was deleted, for example. weir never deletes them.
CREATE TABLE IF NOT EXISTS weir_inbox_refused (
    id               INTEGER PRIMARY KEY,
    topic            TEXT NOT NULL,
    topic_id         TEXT, -- the trigger weir_inbox_topic sets it
    event_key        BLOB,
    event_value      BLOB,
    headers          TEXT,
    partition_number INTEGER,
    published_at     INTEGER NOT NULL,
    reason           TEXT NOT NULL
)
