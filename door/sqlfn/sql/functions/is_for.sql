-- is_for reports whether a row of the inbox with a topic's id is for one of some topics: it has the id of one of them, or one that was reserved for it (tables/051_creation.sql).
CREATE OR REPLACE FUNCTION weir.is_for(topic uuid, topics uuid[]) RETURNS boolean
LANGUAGE plpgsql STABLE
:by_index
AS $$
BEGIN
    RETURN topic = ANY (topics) OR EXISTS (SELECT FROM weir.reserved r JOIN weir.topic t ON t.name = r.name WHERE r.id = is_for.topic AND t.id = ANY (topics));
END $$;
