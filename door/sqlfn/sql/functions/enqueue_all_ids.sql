-- enqueue_all_ids puts one message for each value into a work queue, as weir.enqueue_all does, and returns the messages' ids, in the order of the values.
CREATE OR REPLACE FUNCTION weir.enqueue_all_ids(queue text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    n bigint := weir.post_all_messages(queue, keys, "values", headers, 0);
BEGIN
    -- They are the newest rows of this transaction. Between their ids may be those of other sessions.
    RETURN ARRAY(
        SELECT m.id FROM (
            SELECT i.id FROM weir.inbox i WHERE i.xact >= pg_current_xact_id() AND i.xact <= pg_current_xact_id() ORDER BY i.xact DESC, i.id DESC LIMIT n
        ) AS m ORDER BY m.id);
END $$;
