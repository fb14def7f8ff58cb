-- stir wakes the mover when the transaction commits, where it wants that.
CREATE OR REPLACE FUNCTION weir.stir() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF to_timestamp(pg_sequence_last_value('weir.hushed')) <= clock_timestamp() AND current_setting('weir.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('weir_inbox', '');
    END IF;
END $$;
