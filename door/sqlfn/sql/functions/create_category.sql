-- create_category asks weir to create a category of streams, if the transaction commits. partitions: default 4; settings: those of its topic. If it exists it must be as asked for. Events
-- can be appended once it is done. It returns the request's id in weir.creations.
CREATE OR REPLACE FUNCTION weir.create_category(name text, partitions int DEFAULT NULL, settings jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
:by_index
AS $$
BEGIN
    PERFORM weir.check_new('category', name, 249, partitions, settings), weir.check_same('category', name, partitions, settings);
    RETURN weir.post_creation('category', name, jsonb_build_object('partitions', partitions, 'config', (SELECT jsonb_object_agg(s.key, s.value) FROM jsonb_each_text(settings) AS s)));
END $$;
