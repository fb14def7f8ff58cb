-- unacked returns those of a partition's messages that no transaction acknowledged, not even one that is open. An open transaction's row is not seen:
-- so this adds the rows, and deletes them again; to have to wait for one is to find an open transaction. The row of a nack that committed is no ack, and
-- keeps no message. The caller's own transaction must end at once.
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
                PERFORM FROM weir.nacked n WHERE n.queue = unacked.queue AND n.partition = unacked.partition AND n."offset" = o FOR UPDATE; -- or who has the message acknowledges it just now
                IF FOUND THEN
                    free := free || o;
                END IF;
            END IF;
        EXCEPTION WHEN lock_not_available THEN NULL; -- an open transaction has it
        END;
    END LOOP;
    RETURN free;
END $$;
