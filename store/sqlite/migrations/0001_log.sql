-- The log and the keyed state. eventlog/store.go defines offsets, versions and times.

-- The bounds of each partition. A writer holds the only write lock of the file.
CREATE TABLE partition (
    id           INTEGER PRIMARY KEY,
    first_offset INTEGER NOT NULL, -- the lowest offset that still exists
    next_offset  INTEGER NOT NULL,
    first_byte   INTEGER NOT NULL, -- where the batch that holds first_offset begins, counting all bytes ever appended
    next_byte    INTEGER NOT NULL,
    newest       INTEGER NOT NULL  -- the highest max_time ever appended
) STRICT;

-- The index of the batches. Its rows are short, so that a search reads few pages and no bodies.
--
-- first_byte and newest never decrease along a partition, so a binary search finds a byte and a time.
CREATE TABLE batch (
    partition_id INTEGER NOT NULL,
    base_offset  INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    max_time     INTEGER NOT NULL,
    newest       INTEGER NOT NULL, -- the highest max_time up to this batch
    first_byte   INTEGER NOT NULL, -- bytes of the partition before this batch
    size         INTEGER NOT NULL,
    body_id      INTEGER NOT NULL,
    PRIMARY KEY (partition_id, base_offset)
) STRICT, WITHOUT ROWID;

-- The bytes of the batches, in the order of their arrival: new rows are always added at the end.
CREATE TABLE body (
    id    INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE state (
    key     TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    value   BLOB NOT NULL,
    put_at  INTEGER NOT NULL -- milliseconds since the Unix epoch
) STRICT, WITHOUT ROWID;

-- Batches that are trimmed but not yet deleted: those of a partition that end at or below an offset.
CREATE TABLE trash (
    partition_id INTEGER PRIMARY KEY,
    below        INTEGER NOT NULL
) STRICT;
