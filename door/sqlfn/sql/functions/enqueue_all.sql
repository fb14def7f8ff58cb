-- enqueue_all puts one message for each value (text[], jsonb[] or bytea[]) into a work queue, in order, if the transaction commits. keys (text[] or
-- bytea[]) has one key for each value, or is NULL: no message has a key. Their priority is 0, and nothing delays them. It returns their number.
CREATE OR REPLACE FUNCTION weir.enqueue_all(queue text, keys anycompatiblearray, "values" anyarray, headers jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    about weir.topic := weir.find_level(queue, weir.find_queue(queue), 0);
BEGIN
    IF "values" IS NULL THEN
        RAISE 'values is null' USING ERRCODE = 'null_value_not_allowed', HINT = 'An empty array enqueues nothing.';
    ELSIF array_ndims("values") = 1 AND array_position("values", NULL) IS NOT NULL THEN
        RAISE 'values: element % is null', array_position("values", NULL)
        USING ERRCODE = 'null_value_not_allowed', HINT = 'A message may be empty, but not null.';
    END IF;
    RETURN weir.post_all(about, keys, "values", coalesce(weir.headers_of_new(headers), '{}')); -- a message is an event of the queue's topic
END $$;
