-- is_repeated reports whether a stream has the events of an append from version low on already, by their ids, as use/stream does (Category.repeated). It fails with
-- WE014 if they have other content. Most of the time the first id shows that the events are others.
CREATE OR REPLACE FUNCTION weir.is_repeated(head text, low bigint, types text[], data bytea[], metadata jsonb[], ids text[], at timestamptz[]) RETURNS boolean
LANGUAGE plpgsql
:by_index
AS $$
DECLARE
    many int := cardinality(types);
    same record;
BEGIN
    IF ids IS NULL OR EXISTS (SELECT FROM unnest(ids) AS u(id) WHERE u.id IS NULL OR u.id = '')
       OR NOT EXISTS (SELECT FROM weir.read_stream(head, low, low + 1, false, NULL, NULL, NULL) AS e WHERE e.id = ids[1]) THEN
        RETURN false;
    END IF;
    SELECT count(e.version) = many AND bool_and(e.id = x.id) AS id,
           min(e.version) FILTER (WHERE (e.type, e.subject, e.tags, e.data, e.metadata) IS DISTINCT FROM (x.type, NULL::text, NULL::text[], x.data, weir.shown_metadata(x.metadata))
                                  OR e."time" <> date_trunc('milliseconds', x."time")) AS other
    INTO same
    FROM unnest(types, data, metadata, ids, at) WITH ORDINALITY AS x(type, data, metadata, id, "time", n)
    LEFT JOIN weir.read_stream(head, low, low + many, false, NULL, NULL, NULL) AS e ON e.version = low + x.n - 1;
    IF same.id AND same.other IS NOT NULL THEN
        RAISE 'the event with version % has the same id, but other content', same.other
        USING ERRCODE = 'WE014', HINT = 'Give events with other content other ids.';
    END IF;
    RETURN coalesce(same.id, false);
END $$;
