-- guard has a row for each thing that one transaction at a time may do: who does it locks the row FOR NO KEY UPDATE. Advisory locks would do the
-- same, but any session that may connect can hold those.
--
--   0 to 63  make a key that is not there: the row is chosen by the key's hash
--   64       open a partition
--   65       seal, empty and drop segments
CREATE TABLE weir.guard (
    number int PRIMARY KEY
);

INSERT INTO weir.guard SELECT generate_series(0, 65);
