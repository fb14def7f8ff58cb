-- trim raises a partition's first offset to before, but not above its end. It changes the partition's row and deletes runs.
-- Batches are deleted with their segments (sweep.go). It returns whether anything changed; NULL: no batch has the new first
-- offset, so the partition is damaged, and nothing changed.
CREATE OR REPLACE FUNCTION weir.trim(partition bigint, before bigint) RETURNS boolean
LANGUAGE plpgsql
:by_index
SET enable_sort = off
AS $$
DECLARE
    p      weir.partition;
    target bigint;
    byte   bigint;
    home   weir.run;
BEGIN
    LOCK TABLE weir.epoch IN ROW EXCLUSIVE MODE; -- as a commit
    p := weir.lock_partition(partition);
    target := least(before, p.next_offset);
    IF p.id IS NULL OR target <= p.first_offset THEN
        RETURN false;
    END IF;
    byte := p.next_byte;
    IF target < p.next_offset THEN
        byte := NULL;
        SELECT * INTO home FROM weir.runs(p, target) x LIMIT 1;
        IF home.segment IS NOT NULL THEN
            EXECUTE format('SELECT byte + $3 FROM weir.batch_%s WHERE partition_id = $1 AND base_offset <= $2
                            ORDER BY base_offset DESC, piece DESC LIMIT 1', home.segment)
            INTO byte USING p.id, target, home.shift;
        END IF;
        IF byte IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE weir.partition x
    SET first_offset = target, first_byte = byte, writes = x.writes + 1, turn = (x.writes + 1) / 64
    WHERE x.id = p.id AND x.turn = p.turn;
    DELETE FROM weir.run r WHERE r.partition_id = p.id AND r.next_offset <= target;
    RETURN true;
END $$;
