-- The runs of a segment, in order: a query finds the first run, or changes one, without reading the others, whatever the statistics say.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, partition_id, next_offset);
