-- A condition on only the partition cannot use this index, which it would read whole: it uses the primary key.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, (- partition_id), next_offset);
