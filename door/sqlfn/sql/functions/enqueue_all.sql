-- enqueue_all puts one message for each value (text[], jsonb[] or bytea[]) into a work queue, in order, if the transaction commits. keys (text[] or
-- bytea[]) has one key for each value, or is NULL: no message has a key. Their priority is 0, and nothing delays them. It returns their number.
CREATE OR REPLACE FUNCTION weir.enqueue_all(queue text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    RETURN weir.post_all_messages(queue, keys, "values", headers, NULL);
END $$;
