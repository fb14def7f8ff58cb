-- id_of_topic returns the id of the topic of a name, or the one reserved for it (find_reserved); NULL: there is none.
CREATE OR REPLACE FUNCTION weir.id_of_topic(name text) RETURNS uuid
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    RETURN coalesce((SELECT t.id FROM weir.topic t WHERE t.name = id_of_topic.name), (SELECT r.id FROM weir.find_reserved(id_of_topic.name) AS r));
END $$;
