-- settle ends the runs that idle partitions still have open in a sealed segment, so that the runs can be moved.
CREATE OR REPLACE FUNCTION weir.settle(victim int) RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    p weir.partition;
    wanted bigint;
BEGIN
    FOR wanted IN SELECT x.id FROM weir.partition x WHERE x.segment = victim ORDER BY x.id LOOP
        p := weir.lock_partition(wanted);
        CONTINUE WHEN p.segment IS DISTINCT FROM victim;
        IF p.next_offset > greatest(p.run_offset, p.first_offset) THEN
            INSERT INTO weir.run (partition_id, first_offset, next_offset, first_byte, next_byte, max_time, segment)
            VALUES (p.id, p.run_offset, p.next_offset, p.run_byte, p.next_byte, p.run_time, p.segment);
        END IF;
        UPDATE weir.partition x
        SET segment = 0, run_offset = x.next_offset, run_byte = x.next_byte, run_time = -1,
            writes = x.writes + 1, turn = (x.writes + 1) / 64
        WHERE x.id = p.id AND x.turn = p.turn;
    END LOOP;
END $$;
