-- uncarried returns the heads of streams, and the events that sessions appended and no mover has carried, up to a version of the head's key.
-- All is of one snapshot. The first row of each stream has its head, and no event.
CREATE OR REPLACE FUNCTION weir.uncarried(heads text[], upto bigint[])
RETURNS TABLE (nth int, version bigint, value bytea, "call" bigint, id text, type text, data bytea, metadata text, time_ms bigint)
LANGUAGE plpgsql STABLE
:by_index
SET enable_sort = off
AS $$
DECLARE
    h weir.state;
BEGIN
    FOR n IN 1 .. cardinality(heads) LOOP
        SELECT * INTO h FROM weir.newest_state(heads[n]);
        nth := n;
        version := coalesce(h.version, 0);
        value := h.value;
        "call" := NULL;
        RETURN NEXT;
        RETURN QUERY
        SELECT n, a.version, NULL::bytea, a.head, a.id, a.type, a.data, a.metadata::text, (extract(epoch FROM a."time") * 1000)::bigint
        FROM weir.appended a
        WHERE a.key = heads[n] AND a.version >= coalesce((weir.json_of_value(h.value) ->> 'next')::bigint, 0) AND a.head <= upto[n]
        ORDER BY a.version;
    END LOOP;
END $$;
