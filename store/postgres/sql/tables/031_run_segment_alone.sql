-- Nor can a condition on the offset alone.
DROP INDEX weir.run_segment;
CREATE UNIQUE INDEX run_segment ON weir.run (segment, (- partition_id), (- next_offset));
