-- On a shard: a change of its row is on disk when all is that was committed before.
CREATE TABLE IF NOT EXISTS weir_inbox_barrier (
    one INTEGER PRIMARY KEY,
    n   INTEGER NOT NULL
)
