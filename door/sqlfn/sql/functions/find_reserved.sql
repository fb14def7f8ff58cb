-- find_reserved returns the topic of a name that a waiting request will create, with the id that is reserved for it; nothing if there is none.
CREATE OR REPLACE FUNCTION weir.find_reserved(name text) RETURNS SETOF weir.topic
LANGUAGE plpgsql STABLE
ROWS 1
:by_index
AS $$
BEGIN
    RETURN QUERY
    SELECT r.name, r.id, r.event_max, array_fill(0::bigint, ARRAY[r.partitions]), r.settings
    FROM weir.reserved r JOIN weir.creation c ON c.id = r.creation
    WHERE r.name = find_reserved.name AND c.state = 'waiting'
    ORDER BY r.creation DESC LIMIT 1;
END $$;
