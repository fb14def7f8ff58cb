-- Events that transactions published and that are not moved into the log yet. AUTOINCREMENT: an id is never used again.
CREATE TABLE IF NOT EXISTS weir_inbox (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    topic            TEXT NOT NULL,
    topic_id         TEXT, -- the trigger weir_inbox_topic sets it
    event_key        BLOB,
    event_value      BLOB,    -- NULL: a tombstone, which needs a key
    headers          TEXT,    -- a JSON object; NULL: none
    partition_number INTEGER, -- NULL: chosen by the key
    published_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) -- milliseconds since the Unix epoch
)
