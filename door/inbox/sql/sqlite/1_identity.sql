-- Which inbox this is. The ids of what was moved are kept under this name, so a copy of the log does not take another inbox for its own.
CREATE TABLE IF NOT EXISTS weir_inbox_identity (
    one  INTEGER PRIMARY KEY,
    name TEXT NOT NULL
)
