-- No condition on the partition alone can use it, which would read it whole: the primary key is for those.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, (- partition_id), next_offset);
