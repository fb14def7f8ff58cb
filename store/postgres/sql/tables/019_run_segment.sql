-- The runs of a segment, in order: the first of them is found, and one of them changed, without a look at another, whatever the statistics say.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, partition_id, next_offset);
