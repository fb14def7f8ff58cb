-- find_moved returns the newest record of a partition, from an offset on, that has a message which was first enqueued elsewhere: its header weir.queue.id is the message's id.
-- A record that came back for another queue than mine (as in the header weir.queue.to) does not count (isOthers in use/queue/headers.go).
-- Records of batches that no queue wrote (eventlog/batch.MarkOwn) do not count, except in the wheel, to which nobody else may write. packed: one of the batches is compressed, and SQL
-- cannot read it.
--
-- Headers of a batch that is not compressed are bytes in it, so only batches with the bytes of this header are decoded.
CREATE OR REPLACE FUNCTION weir.find_moved(
    partition bigint, from_offset bigint, message text, mine text, in_wheel boolean, OUT "offset" bigint, OUT headers jsonb, OUT packed boolean
)
LANGUAGE plpgsql STABLE
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    mark bytea := convert_to('weir.queue.id', 'UTF8') || set_byte(decode('00', 'hex'), 0, 2 * octet_length(message)) || convert_to(message, 'UTF8');
    b    record;
BEGIN
    packed := false;
    FOR b IN
        SELECT w.base_offset, w.records, get_byte(w.bytes, 22) & 7 > 0 AS packed
        FROM weir.batch AS w
        WHERE w.partition_id = find_moved.partition AND w.piece = 0
          AND w.base_offset >= coalesce((SELECT max(f.base_offset) FROM weir.batch AS f WHERE f.partition_id = find_moved.partition AND f.base_offset <= from_offset), 0)
          AND w.base_offset + w.records > from_offset
          AND (in_wheel OR get_byte(w.bytes, 21) & 64 > 0)
          AND (get_byte(w.bytes, 22) & 7 > 0 OR position(mark IN CASE octet_length(w.bytes) WHEN w.size THEN w.bytes ELSE (
                  SELECT string_agg(x.bytes, '' ORDER BY x.piece) FROM weir.batch AS x WHERE x.partition_id = find_moved.partition AND x.base_offset = w.base_offset) END) > 0)
        ORDER BY w.base_offset DESC
    LOOP
        packed := packed OR b.packed;
        CONTINUE WHEN b.packed;
        SELECT e."offset", e.headers INTO find_moved."offset", find_moved.headers
        FROM weir.span_events(0, find_moved.partition, greatest(b.base_offset, from_offset), b.base_offset + b.records) AS e
        WHERE e.headers ->> 'weir.queue.id' = message
          AND (coalesce(e.headers -> 'weir.queue.to' ->> -1, e.headers ->> 'weir.queue.to') = mine -- an older weir wrote this header twice into records that it put off again
               OR NOT in_wheel AND NOT e.headers ? 'weir.queue.tried')
        ORDER BY e."offset" DESC LIMIT 1;
        EXIT WHEN FOUND;
    END LOOP;
END $$;
