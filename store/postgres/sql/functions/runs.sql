-- runs lists the runs of a partition that end above an offset, in order. The run being written comes last.
CREATE OR REPLACE FUNCTION weir.runs(p weir.partition, above bigint) RETURNS SETOF weir.run
LANGUAGE sql STABLE
AS $$
    SELECT r.* FROM weir.run r WHERE r.partition_id = p.id AND r.next_offset > above
    UNION ALL
    SELECT p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment, 0
    WHERE p.next_offset > greatest(p.run_offset, above)
    ORDER BY next_offset
$$;
