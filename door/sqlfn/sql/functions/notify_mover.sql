-- notify_mover notifies the mover when the transaction commits, if the mover wants that.
CREATE OR REPLACE FUNCTION weir.notify_mover() RETURNS void
LANGUAGE plpgsql
:pinned
AS $$
BEGIN
    IF to_timestamp(pg_sequence_last_value('weir.hushed')) <= clock_timestamp() AND (CASE current_setting('weir.notify', true)
        WHEN 'on' THEN true
        WHEN 'off' THEN false
        ELSE current_setting('max_prepared_transactions') = '0' -- PREPARE TRANSACTION fails in a transaction that has notified
    END) THEN
        PERFORM weir.notify('weir_inbox', '');
    END IF;
END $$;
