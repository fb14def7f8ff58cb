-- create_topic asks weir to create a topic, if the transaction commits. partitions: default 1; settings: an object, such as {"retention.ms": "86400000"}. If the topic exists it must be as
-- asked for. Events can be published to it in the same transaction. It returns the request's id in weir.creations.
CREATE OR REPLACE FUNCTION weir.create_topic(name text, partitions int DEFAULT NULL, settings jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
DECLARE
    request bigint;
BEGIN
    PERFORM weir.check_new('topic', name, 249, partitions, settings), weir.check_same('topic', name, partitions, settings);
    request := weir.post_creation('topic', name, jsonb_build_object('partitions', partitions, 'config', (SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each_text(settings) AS s)));
    PERFORM weir.reserve(request, name, partitions, settings);
    RETURN request;
END $$;
