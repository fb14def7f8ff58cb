-- check_events checks the events of an append as use/stream does (prepare, NewEvent.check), and returns an upper bound of the bytes of a batch for each of them.
CREATE OR REPLACE FUNCTION weir.check_events(stream text, types text[], data bytea[], metadata jsonb[], ids text[], at timestamptz[]) RETURNS bigint
LANGUAGE plpgsql
:pinned
AS $$
DECLARE
    n    int := cardinality(types);
    bad  record;
    size bigint;
BEGIN
    IF types IS NULL OR n = 0 OR n > 10000 THEN
        RAISE 'types has % elements', coalesce(n, 0) USING ERRCODE = 'invalid_parameter_value', HINT = 'An append has 1 to 10000 events: give a type for each.';
    ELSIF array_ndims(types) > 1 OR array_ndims(metadata) > 1 OR array_ndims(ids) > 1 OR array_ndims(at) > 1 THEN
        RAISE 'an array has more than one dimension' USING ERRCODE = 'invalid_parameter_value', HINT = 'Give arrays of one dimension: each event has one element.';
    END IF;
    FOR bad IN
        SELECT * FROM (VALUES ('data', coalesce(cardinality(data), 0)), ('metadata', cardinality(metadata)), ('ids', cardinality(ids)), ('at', cardinality(at))) AS a(name, n)
    LOOP
        IF bad.n <> n THEN
            RAISE '% has % elements, but types has %', bad.name, bad.n, n
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one element for each event.';
        END IF;
    END LOOP;
    SELECT e.n, e.is_null, e.wrong INTO bad
    FROM (
        SELECT x.n, x.type IS NULL OR x.data IS NULL AS is_null, CASE
            WHEN x.type IS NULL THEN 'type is null'
            WHEN octet_length(x.type) NOT BETWEEN 1 AND 255 THEN format('type has %s bytes; it must have 1 to 255', octet_length(x.type))
            WHEN starts_with(x.type, 'weir.') THEN 'types that begin with weir. are reserved'
            WHEN x.data IS NULL THEN 'data is null; an event without data has '''''
            WHEN octet_length(x.id) > 128 THEN format('id has %s bytes; it must have at most 128', octet_length(x.id))
            WHEN x."time" < '1970-01-01 00:00:00+00' OR x."time" >= '10000-01-01 00:00:00+00' THEN format('at is %s; it must be in the years 1970 to 9999', x."time")
            WHEN jsonb_typeof(x.metadata) <> 'object' THEN format('metadata is of type %s; it must be an object of strings and nulls', jsonb_typeof(x.metadata))
            WHEN EXISTS (SELECT FROM jsonb_each(x.metadata) AS m WHERE jsonb_typeof(m.value) NOT IN ('string', 'null')) THEN 'metadata must be an object of strings and nulls'
            WHEN EXISTS (SELECT FROM jsonb_each(x.metadata) AS m WHERE starts_with(m.key, 'weir.')) THEN 'metadata: names that begin with weir. are reserved'
            END AS wrong
        FROM unnest(types, data, metadata, ids, at) WITH ORDINALITY AS x(type, data, metadata, id, "time", n)
    ) AS e
    WHERE e.wrong IS NOT NULL ORDER BY e.n LIMIT 1;
    IF FOUND THEN
        RAISE 'event %: %', bad.n, bad.wrong USING ERRCODE = CASE WHEN bad.is_null THEN 'null_value_not_allowed' ELSE 'invalid_parameter_value' END;
    END IF;
    SELECT u.id INTO bad FROM unnest(ids) AS u(id) WHERE u.id <> '' GROUP BY u.id HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        RAISE 'two events have the id "%"', left(bad.id, 64) USING ERRCODE = 'invalid_parameter_value', HINT = 'Give each event an id of its own.';
    END IF;
    -- overhead, and the three headers of an event: 47 bytes of names, 19 digits of the version, and the sizes.
    SELECT sum(weir.overhead(x.metadata) + 80 + octet_length(stream) + octet_length(x.type) + octet_length(x.data) + coalesce(octet_length(nullif(x.id, '')), 36)) INTO size
    FROM unnest(types, data, metadata, ids) AS x(type, data, metadata, id);
    RETURN size;
END $$;
