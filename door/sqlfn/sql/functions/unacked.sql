-- unacked returns those of a partition's messages that no transaction has acknowledged, not even an open one. The row of an open transaction is not visible,
-- so this inserts the rows, and deletes them again: if it would have to wait for one, an open transaction has inserted it. The row of a committed nack is not an ack:
-- its message is returned. The caller's transaction must end immediately.
CREATE OR REPLACE FUNCTION weir.unacked(queue text, partition bigint, offsets bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
:by_index
SET lock_timeout = '10ms'
AS $$
DECLARE
    free bigint[] := '{}';
    o    bigint;
BEGIN
    FOREACH o IN ARRAY offsets LOOP
        BEGIN
            INSERT INTO weir.acked (queue, partition, "offset") VALUES (unacked.queue, unacked.partition, o) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                DELETE FROM weir.acked a WHERE a.queue = unacked.queue AND a.partition = unacked.partition AND a."offset" = o;
                free := free || o;
            ELSE
                PERFORM FROM weir.nacked n WHERE n.queue = unacked.queue AND n.partition = unacked.partition AND n."offset" = o FOR UPDATE; -- fails if the worker that has the message is acknowledging it now
                IF FOUND THEN
                    free := free || o;
                END IF;
            END IF;
        EXCEPTION WHEN lock_not_available THEN NULL; -- an open transaction has locked it
        END;
    END LOOP;
    RETURN free;
END $$;
