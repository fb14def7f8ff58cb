-- guard has a row for each action that only one transaction at a time may do. The transaction locks the row FOR NO KEY UPDATE. Advisory locks would
-- do the same, but any session that may connect can take them.
--
--   0 to 63  create a key: the key's hash chooses the row
--   64       create a partition
--   65       seal, empty and drop segments
CREATE TABLE weir.guard (
    number int PRIMARY KEY
);

INSERT INTO weir.guard SELECT generate_series(0, 65);
