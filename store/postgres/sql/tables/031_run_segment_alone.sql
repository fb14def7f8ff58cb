-- A condition on only the offset cannot use it either.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, (- partition_id), (- next_offset));
