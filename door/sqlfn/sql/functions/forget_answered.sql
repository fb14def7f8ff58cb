-- forget_answered deletes rows of weir.acked and weir.nacked that the mover has applied. nacks has the receipt of each nack, and NULL for each ack.
-- It returns the nacks whose row it cannot delete now, because an open transaction of a later claim has locked it.
CREATE OR REPLACE FUNCTION weir.forget_answered(queues text[], partitions bigint[], offsets bigint[], nacks text[]) RETURNS SETOF text
LANGUAGE plpgsql
:by_index
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    n int;
BEGIN
    FOR n IN 1 .. cardinality(queues) LOOP
        IF nacks[n] IS NOT NULL THEN
            PERFORM FROM weir.nacked d WHERE d.queue = queues[n] AND d.partition = partitions[n] AND d."offset" = offsets[n] AND d.receipt = nacks[n] FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                DELETE FROM weir.nacked d WHERE d.queue = queues[n] AND d.partition = partitions[n] AND d."offset" = offsets[n];
            ELSE
                RETURN QUERY SELECT d.receipt FROM weir.nacked d WHERE d.queue = queues[n] AND d.partition = partitions[n] AND d."offset" = offsets[n] AND d.receipt = nacks[n];
                CONTINUE; -- the row of weir.acked belongs to a later claim
            END IF;
        END IF;
        DELETE FROM weir.acked a WHERE a.queue = queues[n] AND a.partition = partitions[n] AND a."offset" = offsets[n];
    END LOOP;
END $$;
