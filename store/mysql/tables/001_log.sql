-- The log and the keyed state. eventlog/store.go defines offsets, versions and times. Each statement ends with a semicolon at the end of a line.

-- The bounds of each partition. Whoever appends to a partition has its row locked, so the row is the order.
CREATE TABLE weir_partition (
    id           BIGINT NOT NULL PRIMARY KEY,
    first_offset BIGINT NOT NULL, -- the lowest offset that still exists
    next_offset  BIGINT NOT NULL,
    first_byte   BIGINT NOT NULL, -- where the batch that holds first_offset begins, counting all bytes ever appended
    next_byte    BIGINT NOT NULL,
    newest       BIGINT NOT NULL, -- the highest max_time ever appended
    replaced     BIGINT NOT NULL, -- the highest offset below which batches were replaced
    removed      BIGINT NOT NULL  -- by how much next_byte - first_byte exceeds the bytes of the batches
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The index of the batches. Its rows are short, so that a search reads few pages and no bytes of batches.
-- newest and first_byte never decrease along a partition, so a binary search finds a time and a byte.
CREATE TABLE weir_batch (
    partition_id BIGINT NOT NULL,
    base_offset  BIGINT NOT NULL,
    records      INT NOT NULL,
    max_time     BIGINT NOT NULL,
    newest       BIGINT NOT NULL, -- the highest max_time up to this batch
    first_byte   BIGINT NOT NULL, -- bytes of the partition before this batch
    size         INT NOT NULL,
    PRIMARY KEY (partition_id, base_offset)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The bytes of the batches, in pieces: neither a statement nor a row of an answer may be longer than max_allowed_packet.
CREATE TABLE weir_piece (
    partition_id BIGINT NOT NULL,
    base_offset  BIGINT NOT NULL,
    nth          INT NOT NULL,
    bytes        MEDIUMBLOB NOT NULL,
    PRIMARY KEY (partition_id, base_offset, nth)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE weir_state (
    k       VARBINARY(2000) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    value   LONGBLOB NOT NULL,
    put_at  BIGINT NOT NULL -- milliseconds since the Unix epoch
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Batches that are trimmed but not yet deleted: those of a partition that end at or below an offset.
CREATE TABLE weir_trash (
    partition_id BIGINT NOT NULL PRIMARY KEY,
    below        BIGINT NOT NULL
) ENGINE=InnoDB;

-- Rows to lock in the place of what does not exist. 0: every commit shares it, and one that begins an epoch has it alone. Others: keys that do not exist, by their hash.
CREATE TABLE weir_guard (
    id INT NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

-- A row to change: see read_barrier.go.
CREATE TABLE weir_barrier (
    id INT NOT NULL PRIMARY KEY,
    n  BIGINT NOT NULL
) ENGINE=InnoDB;

-- Which life of the server this is: a MEMORY table is empty after a restart.
CREATE TABLE weir_life (
    one INT NOT NULL PRIMARY KEY,
    id  BIGINT NOT NULL
) ENGINE=MEMORY;
