-- post_all_messages puts one message for each value into the inbox, in order; see enqueue_all. It returns their number. wanted: see post_all.
CREATE OR REPLACE FUNCTION weir.post_all_messages(queue text, keys anycompatiblearray, "values" anyarray, headers jsonb, wanted bigint) RETURNS bigint
LANGUAGE plpgsql
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
    RETURN weir.post_all(about, keys, "values", coalesce(weir.headers_of_new(headers), '{}'), wanted); -- a message is an event of the queue's topic
END $$;
