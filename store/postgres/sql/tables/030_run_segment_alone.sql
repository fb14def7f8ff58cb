-- A condition on the partition alone cannot use this index, so it uses the primary key. It could use the old index, and then read all of it.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, (- partition_id), next_offset);
