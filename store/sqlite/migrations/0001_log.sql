-- The log and the keyed state. Offsets, versions and times are what eventlog/store.go says they are.

-- A partition's place in the order of all things: whoever writes here holds the one write lock.
CREATE TABLE partition (
    id           INTEGER PRIMARY KEY,
    first_offset INTEGER NOT NULL, -- the lowest offset that is kept
    next_offset  INTEGER NOT NULL,
    first_byte   INTEGER NOT NULL, -- where the batch that holds first_offset begins, counting all bytes ever appended
    next_byte    INTEGER NOT NULL,
    newest       INTEGER NOT NULL  -- the highest max_time ever appended
) STRICT;

-- Where batches are. Narrow, so that a search reads few pages and none of the bodies.
--
-- first_byte and newest only grow along a partition, so both goals of a search are found by halving.
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

-- The batches as their producers sent them, in the order of their arrival: new ones only ever go to the end.
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

-- What is trimmed but not yet deleted: the batches of a partition that end at or below an offset.
CREATE TABLE trash (
    partition_id INTEGER PRIMARY KEY,
    below        INTEGER NOT NULL
) STRICT;
