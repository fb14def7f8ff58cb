-- On a shard: when a change of its row is on disk, all that was committed before is on disk, too.
CREATE TABLE IF NOT EXISTS weir_inbox_barrier (
    one INTEGER PRIMARY KEY,
    n   INTEGER NOT NULL
)
