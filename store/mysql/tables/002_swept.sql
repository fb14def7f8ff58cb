-- How far trimmed batches of a partition are deleted: none is left that begins below an offset. While a transaction that is older than a deletion stays open, InnoDB keeps the
-- deleted rows, and a search from the beginning of the partition would read all of them again. No row: nothing was deleted yet.
CREATE TABLE weir_swept (
    partition_id BIGINT NOT NULL PRIMARY KEY,
    below        BIGINT NOT NULL
) ENGINE=InnoDB;
