-- reserve reserves an id for a topic that a request creates (tables/051_creation.sql), if there is no such topic, and returns the topic's or the reserved id.
CREATE OR REPLACE FUNCTION weir.reserve(request bigint, name text, partitions int, settings jsonb) RETURNS uuid
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    id   uuid := (SELECT t.id FROM weir.topic t WHERE t.name = reserve.name);
    most text := settings ->> 'max.message.bytes';
BEGIN
    IF id IS NULL THEN
        INSERT INTO weir.reserved AS r (creation, name, event_max, partitions, settings)
        VALUES (request, reserve.name, least(CASE WHEN most ~ '^[0-9]{1,18}$' THEN most::bigint ELSE 1048588 END, weir.event_most()), coalesce(partitions, 1), coalesce(settings, '{}'))
        RETURNING r.id INTO id;
    END IF;
    RETURN id;
END $$;
